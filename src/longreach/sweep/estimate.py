"""How long a sweep will take, and what that is based on."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

from longreach.runs import MEASURED_STEPS, seconds_per_step
from longreach.sweep.plan import Plan, Variation
from longreach.sweep.progress import read_progress

_BUDGET = 20.0
"""Seconds after which no further configuration is measured."""


@dataclass(frozen=True)
class Estimate:
    seconds: float
    """Of work that is left, if one job ran after the other."""
    basis: str


def estimate(plan: Plan, out: Path, device: str) -> Estimate:
    """By finished runs of a configuration where there are any, by a few steps of training where there are none."""
    left = {number: [job for job in one.jobs if not job.finished(out)] for number, one in enumerate(plan.variations)}
    todo = {number: plan.variations[number] for number, jobs in left.items() if jobs}
    # seconds of a run, by configuration
    known = {number: seconds for number, one in todo.items() if (seconds := _by_finished(one, out)) is not None}
    finished = len(known)
    torch.set_num_threads(plan.file.resources.cpus)
    start = time.monotonic()
    for number, one in todo.items():
        if number not in known and (not known or time.monotonic() - start < _BUDGET):
            known[number] = one.config.train.steps * seconds_per_step(one.config, device)
    average = mean(known.values()) if known else 0.0
    seconds = sum(known.get(number, average) * sum(len(job.seeds) for job in left[number]) for number in todo)
    measured, guessed = len(known) - finished, len(todo) - len(known)
    basis = []
    if finished:
        basis.append(f"finished runs of {finished} configurations")
    if measured:
        steps = f"{MEASURED_STEPS} training steps of {measured} configurations"
        basis.append(f"{steps} on this machine ({device}), start and tests not counted")
    if guessed:
        basis.append(f"the mean of these for {guessed} more")
    return Estimate(seconds, "; ".join(basis))


def _by_finished(variation: Variation, out: Path) -> float | None:
    """The mean time of the finished runs of a configuration; seeds of a stack share theirs."""
    times = []
    for job in variation.jobs:
        progress = read_progress(job.folders(out)[0].path)
        if job.finished(out) and progress is not None:
            times.append(progress.seconds / len(job.seeds))
    return mean(times) if times else None
