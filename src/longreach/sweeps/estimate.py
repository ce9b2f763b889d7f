"""How long a sweep will take, and what that is based on."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

from longreach.live import read_progress
from longreach.runs import MEASURED_STEPS, seconds_per_step
from longreach.sweeps.plan import PlannedRun, SweepPlan, Variation

_BUDGET = 20.0
"""Seconds after which no further configuration is measured."""


@dataclass(frozen=True)
class SweepEstimate:
    computations: int
    """Processes that the work is cut into: a run, or a stack of them, each."""
    seconds: float
    """Of work that is left, if one job ran after the other."""
    basis: str


def estimate(plan: SweepPlan, out: Path, device: str) -> SweepEstimate:
    """By finished runs of a configuration where there are any, by a few steps of training where there are none."""
    jobs = [[run for run in job.runs if not run.folder(out).finished] for job in plan.jobs]
    todo = {run.variation.path: run.variation for left in jobs for run in left}
    # seconds of a run, by configuration
    known = {path: seconds for path, one in todo.items() if (seconds := _by_finished(one, out)) is not None}
    finished = len(known)
    torch.set_num_threads(min(plan.file.resources.cpus, os.cpu_count() or 1))
    start = time.monotonic()
    for left in jobs:
        if any(run.variation.path not in known for run in left) and (not known or time.monotonic() - start < _BUDGET):
            seconds = _by_steps(left, device)
            known = {**{run.variation.path: seconds for run in left}, **known}
    average = mean(known.values()) if known else 0.0
    total = sum(known.get(run.variation.path, average) for left in jobs for run in left)
    measured, guessed = len(known) - finished, len(todo) - len(known)
    basis = []
    if finished:
        basis.append(f"finished runs of {finished} configurations")
    if measured:
        steps = f"{MEASURED_STEPS} training steps of {measured} configurations"
        basis.append(f"{steps} on this machine ({device}), start and tests not counted")
    if guessed:
        basis.append(f"the mean of these for {guessed} more")
    return SweepEstimate(sum(map(bool, jobs)), total, "; ".join(basis))


def _by_finished(variation: Variation, out: Path) -> float | None:
    """The mean time of the finished runs of a configuration."""
    found = [read_progress(folder.path) for run in variation.runs if (folder := run.folder(out)).finished]
    times = [progress.seconds for progress in found if progress is not None]
    return mean(times) if times else None


def _by_steps(together: Sequence[PlannedRun], device: str) -> float:
    """The time of each of the runs that are trained as one."""
    runs = [(run.variation.config, run.seed) for run in together]
    return runs[0][0].train.steps * seconds_per_step(runs, device) / len(runs)
