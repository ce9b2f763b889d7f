"""How fast a run would train, by a few of its steps."""

import time

from longreach.model import build_model
from longreach.runs.recipe import RunConfig
from longreach.train import TrainingStream, build_optimizer, legal_lengths
from longreach.train.step import Stepper

MEASURED_STEPS = 3


def seconds_per_step(config: RunConfig, device: str) -> float:
    """Measured after one step that does not count; eager, also where the run is to be compiled."""
    task, ids, how = config.task, config.ids, config.train
    data = TrainingStream(task, ids, legal_lengths(task, how.lengths), how.batch_size, 0, device, how.prime)
    model = build_model(config.model, len(task.vocabulary), 0, ids.level_sizes(task), ids.max_id, device).train()
    take_step = Stepper(
        model,
        build_optimizer(how.optimizer, model),
        data,
        how.optimizer,
        how.objective,
        how.steps,
        how.accumulate,
        bf16=how.precision == "bf16",
        record=how.graph,
    )
    take_step(0).tolist()  # reading the loss waits for the device
    start = time.perf_counter()
    for step in range(MEASURED_STEPS):
        take_step(step).tolist()
    return (time.perf_counter() - start) / MEASURED_STEPS
