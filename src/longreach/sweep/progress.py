"""How far a job is, in a small file of its folder: for the table of a sweep, whoever looks and wherever it runs."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from longreach.files import write_atomically
from longreach.runs import Observer, RunFolder

_SECONDS = 1.0
"""Between two writes."""
_LOG_SECONDS = 30.0
"""Between two lines of the log."""


@dataclass(frozen=True)
class Progress:
    """`phase` is train, test or done; `seconds` count all starts of the job together."""

    phase: str
    done: int
    total: int
    note: str
    seconds: float


def read_progress(folder: Path) -> Progress | None:
    try:
        return Progress(**json.loads((folder / "progress.json").read_text()))
    except FileNotFoundError:
        return None


def write_progress(folder: Path, progress: Progress) -> None:
    write_atomically(folder / "progress.json", json.dumps(asdict(progress)).encode())


class Recorder:
    """Writes down what a job tells.  Lines go to stdout, which is the job's log."""

    def __init__(self, folder: Path, written: Callable[[], None]) -> None:
        """`written` is called after every write."""
        self.folder = folder
        self.written = written
        before = read_progress(folder)
        self.started = time.monotonic() - (before.seconds if before else 0.0)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def observer(self, should_stop: Callable[[], bool], saved: Callable[[RunFolder], None]) -> Observer:
        return Observer(phase=self._phase, say=_print, should_stop=should_stop, saved=saved)

    def finish(self) -> None:
        write_progress(self.folder, Progress("done", 1, 1, "", self.seconds))

    def _phase(self, title: str, total: int) -> Callable[[int, str], None]:
        written = logged = -_LOG_SECONDS

        def report(done: int, note: str) -> None:
            nonlocal written, logged
            now = self.seconds
            if now - written >= _SECONDS:
                written = now
                write_progress(self.folder, Progress(title.split()[0], done, total, note, now))
                self.written()
            if now - logged >= _LOG_SECONDS:
                logged = now
                print(f"{title}: {done}/{total} {note}", flush=True)

        return report


def _print(line: str) -> None:
    print(line, flush=True)
