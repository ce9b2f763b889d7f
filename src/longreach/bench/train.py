"""One optimizer step, ours and theirs.

Ours is the step of the training loop: it makes its batch, computes logits only where the loss is, clips and follows a
schedule.  Theirs has its batch lying ready, takes the loss on all tokens as Hugging Face does, and only updates.
"""

import itertools
from collections.abc import Callable

from torch import Tensor

from longreach.bench import rivals
from longreach.bench.comparison import SpeedComparison
from longreach.bench.flops import training_flops
from longreach.bench.machine import Peak, on_gpu, wait_for
from longreach.bench.tasks import length_of
from longreach.bench.timing import Effort, Side, take_turns
from longreach.bench.workload import Workload
from longreach.config import build_part
from longreach.engine.assembly import Drawn
from longreach.engine.plan import choose
from longreach.engine.stacked_training import MultiSeedStream, StackedStep, StackStream
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.model import Model, Transformer, build_model
from longreach.positions.ids import Sequential
from longreach.tasks import Task
from longreach.training import AnyStep, Step, TrainConfig, TrainingStream, build_optimizer

_STEPS = 1_000_000
"""Of the run that a measured step is taken from: the schedule never ends."""


def time_training(
    workload: Workload, task_name: str, device: str, against: str, compiled: bool, effort: Effort, peak: Peak
) -> SpeedComparison:
    """Training on the samples of a task that have about as many tokens as the workload says."""
    forms = rivals.choose_rivals(against, rivals.TRAINING, device)
    data = training_data(workload, task_name, device)
    batch = data.batch(0).sample
    read = batch.tokens.shape[1] - 1  # the last token is predicted and never read
    tokens = workload.batch * read
    model = new_model(workload, data.task, device)
    # ours comes first: nothing else may use the device while it records its step
    ours = "longreach compiled" if compiled else "longreach"
    execution = ExecutionConfig(compile=compiled, recompute=workload.recompute)
    sides = [Side(ours, our_step(model, data, execution), tokens)]
    for form in forms:
        step = rivals.training_step(form, model, batch.tokens[:, :-1], bf16=on_gpu(device))
        sides.append(Side(rivals.TRAINING[form], step, tokens))
    needed = training_flops(model.config, len(data.task.vocabulary), workload.batch, read, int(batch.answer.sum()))
    return SpeedComparison(
        name=f"train {workload} {task_name}{', compiled' if compiled else ''}",  # names in headlines must differ
        timings=tuple(take_turns(sides, effort, lambda: wait_for(device))),
        flops_per_token=needed / tokens,
        peak=peak,
        notes=(
            f"task {task_name}, {read} tokens read, {'bf16 autocast' if on_gpu(device) else 'fp32'}",
            f"{ours} makes its batches within the step",
        ),
    )


def training_data(workload: Workload, task_name: str, device: str) -> TrainingStream:
    """Samples of one length, so that none is padded where the task's samples of a length are equally long."""
    task = build_part(Task, task_name, "--task")
    length = length_of(task, workload.length + 1)
    if not length or task.max_tokens(length) > workload.length + 1:
        raise BadInput(f"--shape: the shortest sample of {task_name} has more than {workload.length} tokens")
    return TrainingStream(task, Sequential(), (length,), workload.batch, seed=0, device=device)


def new_model(workload: Workload, task: Task, device: str, seed: int = 0) -> Transformer:
    model = build_model(workload.model, len(task.vocabulary), seed, device=device)
    assert isinstance(model, Transformer)
    return model


def our_step(model: Model, data: TrainingStream, execution: ExecutionConfig) -> Callable[[], Tensor]:
    """Return a function that takes the next step of a run."""
    take_step, _ = new_step(model, data, execution)
    numbers = itertools.count()
    return lambda: take_step(next(numbers))


def new_step(model: Model, data: TrainingStream, execution: ExecutionConfig) -> tuple[AnyStep, Drawn]:
    """Return a step as a run makes it, and the data that it reads."""
    gpu = on_gpu(data.device)
    config = TrainConfig(steps=_STEPS, precision="bf16" if gpu else "fp32")
    plan = choose(model, execution, data.device, config.precision, data=data)
    optimizer = build_optimizer(config.optimizer, model)
    fast, drawn = plan.training_model(model.train()), plan.training_data(data, _STEPS)
    if isinstance(data, MultiSeedStream) and isinstance(drawn, StackStream):
        step: Step = StackedStep(fast, optimizer, drawn, config)
    else:
        step = Step(fast, optimizer, drawn, config)
    return plan.training_step(step), drawn
