"""Many models of one shape as one computation, beside one of them alone."""

from longreach.bench import rivals
from longreach.bench.comparison import SpeedComparison
from longreach.bench.flops import training_flops
from longreach.bench.machine import Peak, on_gpu, wait_for
from longreach.bench.timing import Effort, Side, take_turns
from longreach.bench.train import new_model, our_step, training_data
from longreach.bench.workload import Workload
from longreach.engine.stacked_training import MultiSeedStream
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig


def time_stack(
    workload: Workload,
    models: int,
    task_name: str,
    device: str,
    against: str,
    compiled: bool,
    effort: Effort,
    peak: Peak,
) -> SpeedComparison:
    """Training `models` seeds at once; every other side trains one model, and tokens are those of all models."""
    forms = rivals.choose_rivals(against, rivals.TRAINING, device)
    one = training_data(workload, task_name, device)
    every = MultiSeedStream.of(one, range(1, models))
    batch = one.batch(0).sample
    read = batch.tokens.shape[1] - 1
    tokens = workload.batch * read
    members = [new_model(workload, one.task, device, seed) for seed in range(models)]
    alone, execution = members[0], ExecutionConfig(compile=compiled, recompute=workload.recompute)
    sides = [
        Side(
            f"longreach, {models} stacked",
            our_step(stack_models(members), every, execution),
            models * tokens,
        ),
        Side("longreach, one", our_step(alone, one, execution), tokens),
    ]
    for form in forms:
        step = rivals.training_step(form, alone, batch.tokens[:, :-1], bf16=on_gpu(device))
        sides.append(Side(f"{rivals.TRAINING[form]}, one", step, tokens))
    needed = training_flops(alone.config, len(one.task.vocabulary), workload.batch, read, int(batch.answer.sum()))
    return SpeedComparison(
        name=f"stack {models} x {workload} {task_name}{', compiled' if compiled else ''}",
        timings=tuple(take_turns(sides, effort, lambda: wait_for(device))),
        flops_per_token=needed / tokens,
        peak=peak,
        notes=(
            f"task {task_name}, {read} tokens read; a ratio of {models} means that {models} models cost as much as one",
        ),
    )
