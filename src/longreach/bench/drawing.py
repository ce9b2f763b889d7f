"""Training on a task in plain Python, beside training on a vectorised sampler of the same task."""

import random
import time
from dataclasses import dataclass
from typing import Any

from longreach.bench.machine import wait_for
from longreach.bench.tasks import length_of
from longreach.bench.train import new_step
from longreach.bench.workload import Workload
from longreach.engine.drawing import HostStream, closing_workers
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.model import build_model
from longreach.positions.ids import Coupled
from longreach.tasks import ParityScratchpad, Program, Task
from longreach.training import TrainingStream

_WARM_UP = 5
"""Steps before the clock runs, besides those whose batches were drawn ahead."""


@dataclass(frozen=True, kw_only=True)
class PlainParity(Program):
    """The task `parity_scratchpad` as a program.  1 0 1 1 ; =  ->  1 1 0 1 ."""

    alphabet = ("0", "1")

    def prompt(self, rng: random.Random, length: int) -> dict[str, list[str]]:
        return {"bits": rng.choices("01", k=length)}

    def run(self, bits: Any, write: Any) -> None:
        while not bits.at_end:
            write(str(int(bits.read()) ^ int(write.last() or 0)))
            bits.step()


@dataclass(frozen=True)
class DrawingSpeed:
    """The speed of training with one sampler."""

    sampler: str
    workers: int
    """Processes that draw batches ahead."""
    steps_per_second: float
    waiting: float
    """The share of time in which training waited for batches."""


def time_drawing(workload: Workload, workers: int, device: str, seconds: float) -> list[DrawingSpeed]:
    """Train on a vectorised sampler, and then on one in plain Python, for so many seconds each."""
    return [
        _time(name, task, workload, workers, device, seconds)
        for name, task in (("vectorised", ParityScratchpad()), ("plain Python", PlainParity()))
    ]


def _time(name: str, task: Task, workload: Workload, workers: int, device: str, seconds: float) -> DrawingSpeed:
    length = length_of(task, workload.length + 1)
    if task.max_tokens(length) > workload.length + 1:
        raise BadInput(f"--shape: the shortest sample has more than {workload.length} tokens")
    policy = Coupled(max_id=4 * length)
    data = TrainingStream(task, policy, tuple(range(1, length + 1)), workload.batch, seed=0, device=device)
    sizes = policy.level_sizes(task)
    model = build_model(workload.model, len(task.vocabulary), 0, sizes, policy.max_id, device)
    step, drawn = new_step(model, data, ExecutionConfig(workers=workers))
    with closing_workers(drawn):
        number, waiting = 0, 0.0
        if isinstance(drawn, HostStream):
            drawn.wait_for_workers()
            number = _warm_up(drawn)
        for _ in range(_WARM_UP):
            step(number)
            number += 1
        wait_for(device)
        if isinstance(drawn, HostStream):
            drawn.measure_waiting()
        begun, first = time.perf_counter(), number
        while time.perf_counter() - begun < seconds:
            step(number)
            number += 1
        wait_for(device)
        spent = time.perf_counter() - begun
        if isinstance(drawn, HostStream):
            waiting = drawn.measure_waiting()
        used = drawn.workers if isinstance(drawn, HostStream) else 0
    return DrawingSpeed(name, used, (number - first) / spent, waiting)


def _warm_up(drawn: HostStream) -> int:
    """Take the batches that were drawn before the start, and return the next step."""
    ahead = 2 * drawn.pool.slots if drawn.pool is not None else 0
    for number in range(ahead):
        drawn.batch(number)
    return ahead
