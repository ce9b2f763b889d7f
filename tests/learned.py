"""Small models that have learned something."""

from dataclasses import replace
from functools import cache

from helpers import TINY, draw

from longreach.api import (
    Coupled,
    OptimizerConfig,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RopeConfig,
    Sequential,
    Tape,
    TrainConfig,
    build_model,
)
from longreach.bench.evaluation import learned_to_repeat
from longreach.bench.scribble import Scribble, scribbled
from longreach.bench.workload import Workload
from longreach.training import Step, TrainingStream, build_optimizer


def _train(model, task, policy, lengths, steps):
    config = TrainConfig(steps=steps, optimizer=OptimizerConfig(lr=4e-3, warmup=20))
    data = TrainingStream(task, policy, lengths, 32, 0, "cpu")
    step = Step(model, build_optimizer(config.optimizer, model), data, config)
    for number in range(steps):
        step(number)
    return model.eval()


PREDICTED = Predicted(max_id=60)
JOBS = {
    "coupled": (ParityScratchpad(), Coupled(max_id=120), {}, 100, range(5, 45, 3)),
    "predicted": (
        Tape(),  # has given tokens
        PREDICTED,
        {"position_head": PointerConfig(), "encoding": RopeConfig(spectrum="random")},
        200,
        range(2, 9),
    ),
    "copying": (ParityScratchpad(), Coupled(max_id=120), {"copy_head": True}, 200, range(2, 14)),
}


@cache
def half_trained(job):
    """A model that is right sometimes, on samples of several lengths."""
    task, policy, parts, steps, tested = JOBS[job]
    config = replace(TINY, width=64, **parts)
    model = build_model(config, len(task.vocabulary), 0, policy.level_sizes(task), policy.max_id)
    return _train(model, task, policy, tuple(range(2, 7)), steps), task, policy, draw(task, list(tested) * 6)


@cache
def repeating():
    """A model that is always right, with samples and IDs.  Every letter but `z` occurs."""
    model = learned_to_repeat(Workload(2, 64, 4, 40, 30), "cpu")
    task = Scribble(prompt_tokens=10, repeats=True)
    sample = scribbled(task, 40, 30, "cpu")
    return model, sample, Sequential().evaluation_ids(task, sample)
