"""What is done, what runs, what failed: read from the run folders, never kept anywhere else.

A run that failed has `attempts.json` beside its log.  Failures are counted only as long as a run gets no further: one
that loses its machine ten times but saves a checkpoint in between is not a run that does not work.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from longreach.runs import LOCK, RunFolder, is_locked
from longreach.sweeps.courier import shows_life
from longreach.sweeps.plan import Job, PlannedRun, SweepPlan
from longreach.sweeps.progress import PROGRESS, Progress, read_progress
from longreach.system.files import read_note, write_atomically
from longreach.training import list_checkpoints

ATTEMPTS = "attempts.json"


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


@dataclass(frozen=True)
class RunState:
    name: str
    state: Literal["finished", "running", "failed", "waiting"]
    attempts: Attempts
    progress: Progress | None


def read_attempts(folder: RunFolder) -> Attempts:
    """Return the failures of a run; none if its file is damaged, which `set_aside_damaged` names."""
    try:
        return read_note(folder.path / ATTEMPTS, lambda content: Attempts(**content)) or Attempts()
    except ValueError:
        return Attempts()


def set_aside_damaged(folder: RunFolder) -> list[str]:
    """Rename damaged notes of a sweep about a run to `NAME.damaged`; return a line for each."""
    lines = []
    makers: dict[str, Callable[[Any], object]] = {
        ATTEMPTS: lambda content: Attempts(**content),
        PROGRESS: lambda content: Progress(**content),
    }
    for name, make in makers.items():
        path = folder.path / name
        try:
            read_note(path, make)
        except ValueError as error:
            aside = path.with_name(f"{name}.damaged")
            path.replace(aside)
            lines.append(f"{error}; it is now {aside.name}, and the run goes on without it")
    return lines


def note_failure(folder: RunFolder, reason: str) -> Attempts:
    before = read_attempts(folder)
    step = max((checkpoint.step for checkpoint in list_checkpoints(folder.checkpoints)), default=0)
    failures = 1 if step > before.step else before.failures + 1
    now = Attempts(failures, step, reason)
    folder.path.mkdir(parents=True, exist_ok=True)  # a job may be lost before it has made its folder
    write_atomically(folder.path / ATTEMPTS, (json.dumps(asdict(now), indent=1) + "\n").encode())
    return now


def forget_failures(folder: RunFolder) -> None:
    (folder.path / ATTEMPTS).unlink(missing_ok=True)


def given_up(job: Job, out: Path, retries: int) -> bool:
    """Whether each of its runs is finished or has failed too often."""
    return all(folder.finished or read_attempts(folder).failures > retries for folder in job.folders(out))


def read_states(plan: SweepPlan, out: Path) -> list[RunState]:
    return [_state_of(run, out, plan.file.retries) for run in plan.runs]


def _state_of(run: PlannedRun, out: Path, retries: int) -> RunState:
    folder = run.folder(out)
    attempts = read_attempts(folder)
    state: Literal["finished", "running", "failed", "waiting"] = "waiting"
    if folder.finished:
        state = "finished"
    elif is_locked(folder.path / LOCK) or shows_life(folder.path):
        state = "running"
    elif attempts.failures > retries:
        state = "failed"
    return RunState(run.name, state, attempts, read_progress(folder.path))
