"""Measure how fast a run, or a stack of runs, trains."""

import time
from collections.abc import Sequence

from longreach.engine.drawing import closing_workers
from longreach.engine.stacking import stack_models
from longreach.runs.parts import common_training, new_model
from longreach.runs.recipe import RunConfig
from longreach.runs.training import make_step
from longreach.training import build_optimizer

MEASURED_STEPS = 3


def seconds_per_step(runs: Sequence[tuple[RunConfig, int]], device: str) -> float:
    """Return the seconds per step of runs, each with its seed, that are trained as one.

    One step is taken before those that are measured.  Layers are not compiled.
    """
    settings, _ = common_training([config for config, _ in runs])
    models = [new_model(config, seed, device) for config, seed in runs]
    model = (models[0] if len(models) == 1 else stack_models(models)).train()
    _, take_step, data = make_step(runs, model, build_optimizer(settings.optimizer, model), device)
    with closing_workers(data):
        take_step(0).tolist()  # reading the loss waits for the device
        start = time.perf_counter()
        for step in range(1, 1 + MEASURED_STEPS):
            take_step(step).tolist()
        return (time.perf_counter() - start) / MEASURED_STEPS
