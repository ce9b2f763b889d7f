"""The times of training steps."""

import time

import torch

_KEPT = 512
"""Steps of a GPU whose events are kept: so many may be under way."""


class StepTimes:
    """Measures from the end of one step to the end of the next; on a GPU by events, which never wait for it."""

    def __init__(self, device: str) -> None:
        self.device, self.cuda = device, torch.device(device).type == "cuda"
        self._found: list[float] = []
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._last_event: torch.cuda.Event | None = None
        self._last = 0.0

    def begin(self) -> None:
        """Note the beginning of a step that does not follow directly on another."""
        if self.cuda:
            self._last_event = self._event()
        else:
            self._last = time.perf_counter()

    def end(self) -> None:
        """Note the end of a step; the next one begins with it."""
        if not self.cuda:
            now = time.perf_counter()
            self._found.append(now - self._last)
            self._last = now
            return
        event = self._event()
        assert self._last_event is not None
        self._events.append((self._last_event, event))
        self._last_event = event
        if len(self._events) > _KEPT:
            self._read(_KEPT // 2)

    def seconds(self) -> list[float]:
        """Return the time of each step."""
        self._read(len(self._events))
        return self._found

    def _read(self, count: int) -> None:
        if not count:
            return
        self._events[count - 1][1].synchronize()
        self._found += [begun.elapsed_time(ended) / 1e3 for begun, ended in self._events[:count]]
        del self._events[:count]

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event
