"""Tokens per second that each task's sampler makes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import torch

from longreach.bench.machine import wait_for
from longreach.config.registry import entries
from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.tasks import Task


@dataclass(frozen=True)
class TaskSpeed:
    """Of one task with its default settings."""

    task: str
    length: int
    tokens: int
    """The most tokens that a sample of this length has."""
    tokens_per_second: float
    """Median over the repeats, padding not counted."""
    slowest: float
    fastest: float


def time_tasks(
    names: list[str], device: str, batch: int = 1024, repeats: int = 20, tokens: int = 100
) -> Iterator[TaskSpeed]:
    """Samples of about so many tokens, made a batch at a time."""
    for name in names:
        task = entries("task")[name]()
        length = length_of(task, tokens)
        rates = list(_rates(task, length, device, batch, repeats))
        yield TaskSpeed(name, length, task.max_tokens(length), median(rates), min(rates), max(rates))


def length_of(task: Task, tokens: int) -> int:
    """The longest length whose samples have at most so many tokens, or the shortest there is."""
    found = 0
    for length in range(1, 2 * tokens):
        try:
            task.check_length(length)
        except BadInput:
            continue
        if found and task.max_tokens(length) > tokens:
            break
        found = length
    return found


def _rates(task: Task, length: int, device: str, batch: int, repeats: int) -> Iterator[float]:
    lengths = torch.full((batch,), length, device=device)
    for repeat in range(-2, repeats):  # the first two warm up
        numbers = torch.arange(batch, device=device) + (repeat + 2) * batch
        wait_for(device)
        start = time.perf_counter()
        sample = task.sample(lengths, stream(0, "bench", numbers), length)
        wait_for(device)
        seconds = time.perf_counter() - start
        if repeat >= 0:
            yield float(sample.num_tokens.sum()) / seconds
