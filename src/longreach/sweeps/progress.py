"""How far a run is, in a small file of its folder: for the table of a sweep, whoever looks and wherever it runs."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from longreach.live import Progress, read_progress, write_progress
from longreach.runs import Observer, RunFolder

_SECONDS = 1.0
"""Between two writes."""
_LOG_SECONDS = 30.0
"""Between two lines of the log."""


class Recorder:
    """Writes down what a job tells, for each of its runs.  Lines go to stdout, which is the job's log."""

    def __init__(self, folders: Sequence[Path], written: Callable[[], None]) -> None:
        """`folders` are those of the runs that the job works on; `written` is called after every write."""
        self.before = {folder: before.seconds if (before := read_progress(folder)) else 0.0 for folder in folders}
        self.written = written
        self.started = time.monotonic()

    def observer(self, should_stop: Callable[[], bool], saved: Callable[[RunFolder], None]) -> Observer:
        return Observer(phase=self._phase, say=_print, should_stop=should_stop, saved=saved)

    def finish(self) -> None:
        self._write("done", 1, 1, "")

    def _phase(self, title: str, total: int) -> Callable[[int, str], None]:
        written = logged = -math.inf

        def report(done: int, note: str) -> None:
            nonlocal written, logged
            now = time.monotonic()
            if now - written >= _SECONDS:
                written = now
                self._write(title.split()[0], done, total, note)
                self.written()
            if now - logged >= _LOG_SECONDS:
                logged = now
                print(f"{title}: {done}/{total} {note}", flush=True)

        return report

    def _write(self, phase: str, done: int, total: int, note: str) -> None:
        """A stack is one computation: each of its runs is as far as the others."""
        share = (time.monotonic() - self.started) / max(1, len(self.before))
        for folder, before in self.before.items():
            write_progress(folder, Progress(phase, done, total, note, before + share))


def _print(line: str) -> None:
    print(line, flush=True)
