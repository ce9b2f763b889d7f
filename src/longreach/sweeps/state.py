"""What is done, what runs, what failed: read from the run folders, never kept anywhere else.

A run that failed has `attempts.json` beside its log.  Failures are counted only as long as a run gets no further: one
that loses its machine ten times but saves a checkpoint in between is not a run that does not work.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from longreach.live import ATTEMPTS, PROGRESS, Attempts, Progress, read_attempts, read_progress
from longreach.runs import LOCK, RunFolder, is_locked
from longreach.sweeps.courier import shows_life
from longreach.sweeps.plan import Job, PlannedRun, SweepPlan
from longreach.system.files import read_note, write_atomically
from longreach.training import list_checkpoints


@dataclass(frozen=True)
class RunState:
    name: str
    state: Literal["finished", "running", "failed", "waiting"]
    attempts: Attempts
    progress: Progress | None


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
    before = read_attempts(folder.path)
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
    return all(folder.finished or read_attempts(folder.path).failures > retries for folder in job.folders(out))


def read_states(plan: SweepPlan, out: Path) -> list[RunState]:
    return [_state_of(run, out, plan.file.retries) for run in plan.runs]


def _state_of(run: PlannedRun, out: Path, retries: int) -> RunState:
    folder = run.folder(out)
    attempts = read_attempts(folder.path)
    state: Literal["finished", "running", "failed", "waiting"] = "waiting"
    if folder.finished:
        state = "finished"
    elif is_locked(folder.path / LOCK) or shows_life(folder.path):
        state = "running"
    elif attempts.failures > retries:
        state = "failed"
    return RunState(run.name, state, attempts, read_progress(folder.path))
