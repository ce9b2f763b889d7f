"""End the process soon after SIGINT (Ctrl-C) or SIGTERM, also while the main thread computes a long torch operation.

Python runs signal handlers in the main thread, between two bytecodes.  One torch operation may take minutes.  Torch
releases the GIL meanwhile, so a second thread can act: the C part of Python's signal handling writes the signal's
number to a pipe at once, and the thread reads it from there.

The first signal raises KeyboardInterrupt, or sets a flag where the work is `deferred`.  If the process has not ended
a few seconds later, or when a second signal comes, the thread ends the process with `os._exit`.  Files stay whole,
because they are written atomically.
"""

import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from longreach.errors import BadInput

SECONDS_VARIABLE = "LONGREACH_STOP_SECONDS"
_SECONDS = 4.0
_SAME = 0.2
"""Seconds within which a second signal is a copy of the first: `timeout` and others send to a process and its group."""
_SILENT = 0.5
"""Seconds after which a main thread that has not reacted yet is announced to be stopping."""
_CLOSE = 0
"""The byte that ends the thread; no signal has this number."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stop_seconds() -> float:
    """Return the seconds that a process has to end after the first signal."""
    text = os.environ.get(SECONDS_VARIABLE, "")
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise BadInput(f"{SECONDS_VARIABLE} must be a number of seconds above 0, got {text!r}")
    return seconds


class Interrupts:
    """The signals that a process has received, and the thread that acts on them."""

    def __init__(self, seconds: float, speak: Callable[[str], None]) -> None:
        self.seconds, self.speak = seconds, speak
        self.first: int | None = None
        """The number of the first signal."""
        self.deferrals: list[Callable[[], str]] = []
        """Work in progress that ends by itself after a request; each entry describes what is kept if it is cut."""
        self.actions: list[Callable[[], None]] = []
        """Executed before the process ends by force, such as the end of child processes."""
        self._raised = False
        self._began: float | None = None
        self._announced = False
        self._reader = self._writer = -1
        self._thread = threading.Thread(target=self._listen, name="interrupts", daemon=True)

    @property
    def asked(self) -> bool:
        """Return whether the process was asked to stop."""
        return self.first is not None

    def exit_code(self) -> int:
        """Return 130 after SIGINT and 143 after SIGTERM."""
        return 128 + (self.first or signal.SIGINT)

    def request(self) -> None:
        """Ask the process to stop, as SIGTERM does.  For any thread."""
        self.first = self.first or signal.SIGTERM
        if self._writer >= 0:
            os.write(self._writer, bytes([signal.SIGTERM]))

    def install(self) -> None:
        """Handle both signals.  Libraries such as Ray install handlers of their own, so this may be called again."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def start(self) -> int:
        """Start the thread; return the file descriptor that was woken by signals before."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._thread.start()
        return signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def close(self) -> None:
        os.write(self._writer, bytes([_CLOSE]))
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)
        self._reader = self._writer = -1

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.first = self.first or number
        if not self.deferrals and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _listen(self) -> None:
        while True:
            if not select.select([self._reader], [], [], self._timeout())[0]:
                self._on_time()
                continue
            for number in os.read(self._reader, 64):
                if number == _CLOSE:
                    return
                if number in _SIGNALS:
                    self._on_signal(number)

    def _timeout(self) -> float | None:
        if self._began is None:
            return None
        until = self._began + (self.seconds if self._announced else min(self.seconds, _SILENT))
        return max(0.0, until - time.monotonic())

    def _on_signal(self, number: int) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began, self.first = now, self.first or number
            if self.deferrals:
                self._announce("stopping after this step")
        elif now - self._began > _SAME:
            self._end("stopped at once")

    def _on_time(self) -> None:
        assert self._began is not None
        if time.monotonic() - self._began >= self.seconds:
            self._end(f"stopped inside a computation that takes longer than {self.seconds:g} s")
        elif not self._announced:
            self._announce("stopping")

    def _announce(self, what: str) -> None:
        self._announced = True
        self._say(lambda: f"{what}, in {self.seconds:g} s at the latest (once more to stop at once)")

    def _end(self, how: str) -> None:
        """End the process now."""
        actions = [*reversed(self.actions), *(child.kill for child in multiprocessing.active_children())]
        for action in actions:
            with suppress(Exception):  # a child that is gone already must not keep this process alive
                action()
        deferrals = list(self.deferrals)
        self._say(lambda: "; ".join([how, *filter(None, (kept() for kept in deferrals))]))
        with suppress(OSError):
            if os.isatty(2):
                os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor
        os._exit(self.exit_code())

    def _say(self, line: Callable[[], str]) -> None:
        """Speak in a thread of its own: a terminal or a disk that hangs must not delay the end."""
        speaker = threading.Thread(target=lambda: self.speak(line()), daemon=True)
        speaker.start()
        speaker.join(_SILENT)


_current: Interrupts | None = None


@contextmanager
def catch_interrupts(speak: Callable[[str], None], seconds: float, linger: bool = False) -> Iterator[Interrupts]:
    """Catch SIGINT and SIGTERM; the process ends at most `seconds` after the first.

    With `linger`, a request that came within the block limits the rest of the process too, such as threads that are
    joined at exit.  Outside the main thread, where Python handles no signals, nothing is caught.
    """
    global _current
    interrupts = Interrupts(seconds, speak)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    outer, _current = _current, interrupts
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    woken = interrupts.start()
    interrupts.install()
    try:
        yield interrupts
    finally:
        if not (linger and interrupts.asked):
            signal.set_wakeup_fd(woken)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            interrupts.close()
            _current = outer


@contextmanager
def deferred(kept: Callable[[], str] = lambda: "") -> Iterator[Callable[[], bool]]:
    """Return a function that says whether to stop.  The first signal raises nothing inside the block.

    `kept` describes what is kept and what is lost if the process must end before the work has stopped by itself.
    """
    if _current is None:
        yield lambda: False
        return
    interrupts = _current
    interrupts.install()
    interrupts.deferrals.append(kept)
    try:
        yield lambda: interrupts.asked
    finally:
        interrupts.deferrals.remove(kept)


@contextmanager
def ending_with_us(action: Callable[[], None]) -> Iterator[None]:
    """Execute an action, such as the end of child processes, if the process ends by force inside the block."""
    if _current is None:
        yield
        return
    interrupts = _current
    interrupts.actions.append(action)
    try:
        yield
    finally:
        interrupts.actions.remove(action)
