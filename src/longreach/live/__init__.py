"""Run folders and sweeps as other processes see them; imports neither torch nor numpy."""

from longreach.live.look import STATES, Overview, Watched
from longreach.live.records import (
    ATTEMPTS,
    PROGRESS,
    SWEEP,
    SWEEP_LOCK,
    Attempts,
    Progress,
    SweepRecord,
    read_attempts,
    read_progress,
    read_sweep,
    write_progress,
    write_sweep,
)
from longreach.live.run import HEADLINE, RunView, State, SweepState

__all__ = [
    "ATTEMPTS",
    "HEADLINE",
    "PROGRESS",
    "STATES",
    "SWEEP",
    "SWEEP_LOCK",
    "Attempts",
    "Overview",
    "Progress",
    "RunView",
    "State",
    "SweepRecord",
    "SweepState",
    "Watched",
    "read_attempts",
    "read_progress",
    "read_sweep",
    "write_progress",
    "write_sweep",
]
