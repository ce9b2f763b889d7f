"""How fast a run, or a stack of them, would train, by a few of its steps."""

import time
from collections.abc import Sequence

from longreach.engine.stacking import stack_models
from longreach.runs.parts import common_training, new_model, stacked_data
from longreach.runs.recipe import RunConfig
from longreach.training import build_optimizer
from longreach.training.step import Stepper

MEASURED_STEPS = 3


def seconds_per_step(runs: Sequence[tuple[RunConfig, int]], device: str) -> float:
    """Of runs, each with its seed, that are trained as one.  Measured after one step that does not count; eager, also
    where they are to be compiled."""
    how, shares = common_training([config for config, _ in runs])
    execution = runs[0][0].execution
    models = [new_model(config, seed, device) for config, seed in runs]
    model = (models[0] if len(models) == 1 else stack_models(models)).train()
    take_step = Stepper(
        model,
        build_optimizer(how.optimizer, model),
        stacked_data(runs, device),
        how.optimizer,
        how.objective,
        how.steps,
        execution.accumulate,
        bf16=how.precision == "bf16",
        record=execution.graph,
        shares=shares,
    )
    take_step(0).tolist()  # reading the loss waits for the device
    start = time.perf_counter()
    for step in range(1, 1 + MEASURED_STEPS):
        take_step(step).tolist()
    return (time.perf_counter() - start) / MEASURED_STEPS
