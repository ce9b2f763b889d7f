"""What a run is while it runs, and how it tells what it is doing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from longreach.evaluation import Work
from longreach.model import Model
from longreach.runs.folder import RunFolder
from longreach.runs.journal import Journal
from longreach.runs.profile import NoProfile
from longreach.runs.recipe import RunConfig
from longreach.runs.tracking import Trackers
from longreach.training import list_checkpoints


@dataclass(frozen=True)
class Observer:
    """How a run tells what it is doing.  The defaults tell nobody."""

    phase: Callable[[str, int], Callable[[int, str], None]] = lambda title, total: lambda done, note: None
    """Begin a phase of so many units; the answer is called with the units done and a short note."""
    expect: Callable[[Work], None] = lambda work: None
    """Called with an estimate of the phase that has just begun, before its work starts."""
    say: Callable[[str], None] = lambda line: None
    should_stop: Callable[[], bool] = lambda: False
    saved: Callable[[RunFolder], None] = lambda folder: None
    """Called when a run has saved a checkpoint or its scores."""
    profile: NoProfile = field(default_factory=NoProfile)
    """Measures where the time goes."""


class Run(NamedTuple):
    """One seed of one configuration."""

    config: RunConfig
    folder: RunFolder
    seed: int
    model: Model
    journal: Journal
    tracker: Trackers


def label(folder: RunFolder) -> str:
    return "/".join(Path(folder.path).parts[-2:])


def saved_step(folder: RunFolder) -> int:
    """Return the step of the newest checkpoint, or 0."""
    return max((checkpoint.step for checkpoint in list_checkpoints(folder.checkpoints)), default=0)


def last_good(folder: RunFolder) -> str:
    checkpoints = list_checkpoints(folder.checkpoints)
    if not checkpoints:
        return "no checkpoint had been saved before"
    return f"the last good state is step {checkpoints[-1].step} in {folder.checkpoints}"
