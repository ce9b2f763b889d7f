"""Sweeps: grids of runs on one machine or many."""

from longreach.sweep.backends import Backend, LocalBackend
from longreach.sweep.driver import Watcher, drive, sole_driver
from longreach.sweep.estimate import Estimate, estimate
from longreach.sweep.plan import Job, Plan, check_plan, make_plan
from longreach.sweep.resources import Resources
from longreach.sweep.state import Attempts, RunState, read_states

__all__ = [
    "Attempts",
    "Backend",
    "Estimate",
    "Job",
    "LocalBackend",
    "Plan",
    "Resources",
    "RunState",
    "Watcher",
    "check_plan",
    "drive",
    "estimate",
    "make_plan",
    "read_states",
    "sole_driver",
]
