"""The gain of each part of the engine: training steps with all parts, beside steps without one of them."""

import itertools
from collections.abc import Callable
from dataclasses import replace

from longreach.bench.comparison import SpeedComparison
from longreach.bench.flops import training_flops
from longreach.bench.machine import Peak, on_gpu, wait_for
from longreach.bench.timing import Effort, Side, take_turns
from longreach.bench.train import new_model, our_step, training_data
from longreach.bench.workload import Workload
from longreach.engine.plan import choose
from longreach.engine.stacked_training import MultiSeedStream
from longreach.engine.stacking import stack_models
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.model import Transformer
from longreach.runs import load_recipe
from longreach.runs import new_model as model_of_run
from longreach.runs.training import make_step
from longreach.training import build_optimizer

_NO_STEP = ("large_chunks", "half_precision_tests", "recorded_tests", "recorded_decoding")
"""Parts that a training step does not use."""

NewStep = Callable[[ExecutionConfig], tuple[tuple[str, ...], Callable[[], object]]]
"""Makes a step from settings, and returns the parts that compute it besides."""


def time_parts(
    workload: Workload, task_name: str, recipe: str | None, models: int, device: str, effort: Effort, peak: Peak
) -> SpeedComparison:
    """Time steps of a workload, or of a recipe's variant such as `parity_far/rule`; `models` are stacked."""
    name, new_step, tokens, flops = (
        _of_workload(workload, task_name, models, device) if recipe is None else _of_recipe(recipe, models, device)
    )
    used, all_parts = new_step(ExecutionConfig())
    sides = [Side("all parts", all_parts, tokens)]
    for part in used:
        if part not in _NO_STEP:
            sides.append(Side(f"without {part}", new_step(ExecutionConfig(without=[part]))[1], tokens))
    sides.append(Side("plain", new_step(ExecutionConfig(engine="plain"))[1], tokens))
    return SpeedComparison(
        name=f"parts {name}",
        timings=tuple(take_turns(sides, effort, lambda: wait_for(device))),
        flops_per_token=flops / tokens,
        peak=peak,
        notes=("a ratio of 1.03 means that a step is 3% slower without the part",),
    )


def _of_workload(workload: Workload, task_name: str, models: int, device: str) -> tuple[str, NewStep, int, int]:
    data = training_data(workload, task_name, device)
    batch = data.batch(0).sample
    read = batch.tokens.shape[1] - 1

    def new_step(execution: ExecutionConfig) -> tuple[tuple[str, ...], Callable[[], object]]:
        members = [new_model(workload, data.task, device, seed) for seed in range(models)]
        model = members[0] if models == 1 else stack_models(members)
        every = data if models == 1 else MultiSeedStream.of(data, range(1, models))
        plan = choose(model, execution, device, "bf16" if on_gpu(device) else "fp32", data=every)
        return plan.used, our_step(model, every, execution)

    flops = training_flops(workload.model, len(data.task.vocabulary), workload.batch, read, int(batch.answer.sum()))
    return f"{models} x {workload} {task_name}", new_step, models * workload.batch * read, models * flops


def _of_recipe(recipe: str, models: int, device: str) -> tuple[str, NewStep, int, int]:
    name, _, variant = recipe.partition("/")
    variants = load_recipe(name).variants
    if variant not in variants:
        raise BadInput(f"--recipe: {name} has no variant {variant!r}, only {', '.join(variants)}")
    config = variants[variant]

    def new_step(execution: ExecutionConfig) -> tuple[tuple[str, ...], Callable[[], object]]:
        runs = [(replace(config, execution=execution), seed) for seed in range(models)]
        members = [model_of_run(one, seed, device) for one, seed in runs]
        model = (members[0] if models == 1 else stack_models(members)).train()
        plan, step, _ = make_step(runs, model, build_optimizer(config.train.optimizer, model), device)
        numbers = itertools.count()
        return plan.used, lambda: step(next(numbers))

    model = model_of_run(config, 0, "cpu")
    width = config.task.max_tokens(config.train.lengths.high) - 1
    tokens, flops = models * config.train.batch_size * width, 0
    if isinstance(model, Transformer):
        answers = config.train.batch_size * config.task.max_answer(config.train.lengths.high)
        vocabulary = len(config.task.vocabulary)
        flops = models * training_flops(model.config, vocabulary, config.train.batch_size, width, answers)
    return f"{models} x {recipe}", new_step, tokens, flops
