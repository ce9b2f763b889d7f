"""How fast a run would train, by a few of its steps."""

import time

from longreach.runs.parts import new_model, training_data
from longreach.runs.recipe import RunConfig
from longreach.train import build_optimizer
from longreach.train.step import Stepper

MEASURED_STEPS = 3


def seconds_per_step(config: RunConfig, device: str) -> float:
    """Measured after one step that does not count; eager, also where the run is to be compiled."""
    how = config.train
    model = new_model(config, 0, device).train()
    take_step = Stepper(
        model,
        build_optimizer(how.optimizer, model),
        training_data(config, how.batch_size, [0], device),
        how.optimizer,
        how.objective,
        how.steps,
        how.accumulate,
        bf16=how.precision == "bf16",
        record=how.graph,
    )
    take_step(0).tolist()  # reading the loss waits for the device
    start = time.perf_counter()
    for step in range(1, 1 + MEASURED_STEPS):
        take_step(step).tolist()
    return (time.perf_counter() - start) / MEASURED_STEPS
