"""Small files in the folders of a sweep, by which other processes see how far it is."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longreach.system.files import read_json, read_note, write_atomically

PROGRESS = "progress.json"
ATTEMPTS = "attempts.json"
SWEEP = "sweep.json"
SWEEP_LOCK = ".sweep.lock"
"""Held by the process that drives a sweep."""


@dataclass(frozen=True)
class Progress:
    """`phase` is train, test or done; `seconds` count all starts together, and runs of a stack share them evenly."""

    phase: str
    done: int
    total: int
    note: str
    seconds: float

    def __post_init__(self) -> None:
        texts, numbers = (self.phase, self.note), (self.done, self.total, self.seconds)
        if not (
            all(isinstance(text, str) for text in texts) and all(type(number) in (int, float) for number in numbers)
        ):
            raise TypeError("a field has the wrong type")
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("a number is not finite")


def read_progress(folder: Path) -> Progress | None:
    """Return how far a run is; None if that is not known, also because the file is damaged."""
    try:
        return read_note(folder / PROGRESS, lambda content: Progress(**content))
    except ValueError:
        return None


def write_progress(folder: Path, progress: Progress) -> None:
    write_atomically(folder / PROGRESS, json.dumps(asdict(progress)).encode())


@dataclass(frozen=True)
class Attempts:
    """The failures of a run since it last got further."""

    failures: int = 0
    step: int = 0
    """Of its newest checkpoint at the last failure."""
    reason: str = ""

    def __post_init__(self) -> None:
        if not (type(self.failures) is type(self.step) is int and isinstance(self.reason, str)):
            raise TypeError("a field has the wrong type")


def read_attempts(folder: Path) -> Attempts:
    """Return the failures of a run; none if its file is damaged, which a sweep names when it starts."""
    try:
        return read_note(folder / ATTEMPTS, lambda content: Attempts(**content)) or Attempts()
    except ValueError:
        return Attempts()


@dataclass(frozen=True)
class SweepRecord:
    """The runs of a sweep, in the folder of the sweep."""

    title: str
    retries: int
    """How often a run that failed is tried again."""
    runs: tuple[str, ...]
    """Folders below that of the sweep."""


def read_sweep(folder: Path) -> SweepRecord:
    """Return the record of a sweep; raise BadInput if it is damaged."""
    return read_json(folder / SWEEP, _sweep)


def _sweep(content: Any) -> SweepRecord:
    title, retries, runs = content["title"], content["retries"], content["runs"]
    if not (isinstance(title, str) and type(retries) is int and isinstance(runs, list)):
        raise TypeError("a field has the wrong type")
    if not all(isinstance(name, str) for name in runs):
        raise TypeError("the name of a run is no text")
    return SweepRecord(title, retries, tuple(runs))


def write_sweep(folder: Path, sweep: SweepRecord) -> None:
    """Write the record of a sweep."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SWEEP, (json.dumps(asdict(sweep), indent=1) + "\n").encode())
