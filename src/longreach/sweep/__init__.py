"""Sweeps: grids of runs on one machine or many."""

from longreach.sweep.backends import Backend, BackendLost, LocalBackend
from longreach.sweep.driver import Watcher, drive, sole_driver
from longreach.sweep.estimate import Estimate, estimate
from longreach.sweep.fetch import fetch
from longreach.sweep.mirror import Mirror, check_writable, open_mirror, scratch_folder
from longreach.sweep.plan import Job, Plan, PlannedRun, check_plan, make_plan
from longreach.sweep.resources import Resources
from longreach.sweep.state import Attempts, RunState, read_states
from longreach.sweep.storage import is_url, open_storage

__all__ = [
    "Attempts",
    "Backend",
    "BackendLost",
    "Estimate",
    "Job",
    "LocalBackend",
    "Mirror",
    "Plan",
    "PlannedRun",
    "Resources",
    "RunState",
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
