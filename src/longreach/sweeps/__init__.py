"""Sweeps: grids of runs on one machine or many."""

from longreach.live import Attempts
from longreach.sweeps.backends import Backend, BackendLost, LocalBackend
from longreach.sweeps.driver import Watcher, drive, sole_driver
from longreach.sweeps.estimate import SweepEstimate, estimate
from longreach.sweeps.fetch import fetch
from longreach.sweeps.mirror import Mirror, check_writable, open_mirror, scratch_folder
from longreach.sweeps.plan import Job, PlannedRun, SweepPlan, check_plan, make_plan
from longreach.sweeps.resources import Resources
from longreach.sweeps.state import RunState, read_states
from longreach.sweeps.storage import is_url, open_storage

__all__ = [
    "Attempts",
    "Backend",
    "BackendLost",
    "Job",
    "LocalBackend",
    "Mirror",
    "PlannedRun",
    "Resources",
    "RunState",
    "SweepEstimate",
    "SweepPlan",
    "Watcher",
    "check_plan",
    "check_writable",
    "drive",
    "estimate",
    "fetch",
    "is_url",
    "make_plan",
    "open_mirror",
    "open_storage",
    "read_states",
    "scratch_folder",
    "sole_driver",
]
