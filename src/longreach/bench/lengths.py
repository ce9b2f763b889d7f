"""Time and memory by length: reading a sample with its scores, and a training step, until one runs out of either."""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

from longreach.bench import rivals
from longreach.bench.flops import forward_flops, training_flops
from longreach.bench.machine import (
    MEMORY_ON_CPU,
    MEMORY_ON_GPU,
    Peak,
    forget_memory,
    most_memory,
    on_gpu,
    wait_for,
)
from longreach.bench.timing import Effort, Side, take_turns
from longreach.bench.train import new_model, our_step, training_data
from longreach.bench.workload import Workload
from longreach.engine.plan import choose
from longreach.errors import lacks_memory
from longreach.evaluation import judge_in_one_pass
from longreach.execution import ExecutionConfig

EVALUATION, TRAINING = "evaluation", "training"


@dataclass(frozen=True)
class Figures:
    """What was measured at a length."""

    tokens_per_second: float
    slowest: float
    fastest: float
    seconds: float
    memory: int
    """In bytes; the report says what was counted."""
    floor_share: float


@dataclass(frozen=True)
class LengthRow:
    """One side at one length: figures, or why there are none."""

    side: str
    length: int
    figures: Figures | None
    failure: str = ""


@dataclass(frozen=True)
class LengthReport:
    name: str
    rows: tuple[LengthRow, ...]
    stopped: str
    """At which length the measurement ended, and why."""
    memory: str
    """What the memory of a row is."""
    peak: Peak

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "peak_flops": self.peak.flops,
            "peak": self.peak.how,
            "memory": self.memory,
            "stopped": self.stopped,
            "rows": [asdict(row) for row in self.rows],
        }


def time_lengths(
    workload: Workload,
    up_to: int,
    task_name: str,
    device: str,
    against: str,
    effort: Effort,
    peak: Peak,
    progress: Callable[[LengthRow], None] = lambda row: None,
    clock: Callable[[], float] = time.perf_counter,
) -> LengthReport:
    """From the workload's length on, doubling.  `effort.seconds` is for all lengths together."""
    going = [EVALUATION, TRAINING]
    if rivals.choose_rivals(against, {"hf-eager": "hf eager"}, device):
        going += [f"hf {name}" for name in going]
    rows: list[LengthRow] = []
    begun = clock()
    stopped = "no length was measured"
    for length in _doubling(workload.length, up_to):
        spent = clock() - begun
        expected = sum(_expected(row.figures, effort.rounds) for row in rows[-len(going) :] if row.figures is not None)
        if spent + expected > effort.seconds:
            stopped = f"stopped before {length}: {spent:.0f} s are spent, and it may not fit into {effort.seconds:g} s"
            break
        for name in list(going):
            row = _measure(name, replace(workload, length=length), task_name, device, effort.rounds, peak)
            rows.append(row)
            progress(row)
            if row.failure:
                going.remove(name)
        if not going:
            stopped = f"stopped at {length}: out of memory"
            break
        stopped = f"done up to {length}, as asked"
    return LengthReport(
        name=f"length {workload}",
        rows=tuple(rows),
        stopped=stopped,
        memory=MEMORY_ON_GPU if on_gpu(device) else MEMORY_ON_CPU,
        peak=peak,
    )


def _expected(figures: Figures, rounds: int) -> float:
    """Seconds that twice the length may take: up to four times as many for a call, of which there are two more to warm
    up.  What the first length took besides, such as starting the device, does not come again."""
    return 4 * figures.seconds * (rounds + 2)


def _doubling(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


def make_side(name: str, workload: Workload, task_name: str, device: str) -> tuple[Side, int]:
    """A side, and the operations that a call of it needs."""
    data = training_data(workload, task_name, device)
    batch = data.batch(0)
    model = new_model(workload, data.task, device)
    inputs = batch.sample.tokens[:, :-1]
    execution = ExecutionConfig(graph=False, recompute=workload.recompute)
    call: Callable[[], object]
    if name == EVALUATION:
        # in fp32: half precision would settle nothing of what an untrained model says
        call = partial(judge_in_one_pass, choose(model, execution, device).test_model(model), batch.sample, batch.ids)
    elif name == TRAINING:
        # not recorded: then the memory is that of a step, and long steps gain little from it
        call = our_step(model, data, execution)
    elif name == f"hf {EVALUATION}":
        call = rivals.reading(model, inputs)
    else:
        call = rivals.training_step("hf-eager", model, inputs, bf16=on_gpu(device))
    count = training_flops if name.endswith(TRAINING) else forward_flops
    needed = count(
        model.config, len(data.task.vocabulary), workload.batch, inputs.shape[1], int(batch.sample.answer.sum())
    )
    return Side(name, call, inputs.numel()), needed


def _measure(name: str, workload: Workload, task_name: str, device: str, rounds: int, peak: Peak) -> LengthRow:
    """One row.  Sides do not take turns here: each must have the memory to itself."""
    gc.collect()
    forget_memory(device)
    try:
        side, needed = make_side(name, workload, task_name, device)
        (timing,) = take_turns([side], Effort(rounds), lambda: wait_for(device), warm_up=1)
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        return LengthRow(name, workload.length, None, failure="out of memory")
    figures = Figures(
        tokens_per_second=timing.rate,
        slowest=timing.slowest,
        fastest=timing.fastest,
        seconds=timing.typical,
        memory=most_memory(device),
        floor_share=needed / timing.typical / peak.flops,
    )
    return LengthRow(name, workload.length, figures)
