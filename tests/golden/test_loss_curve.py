"""A stored loss curve: a change that is not about computation must leave it as it is.

`python tests/golden/test_loss_curve.py` prints it anew.  The curve below was made by that command on an x86-64 CPU
with torch 2.13.0 and one thread; other processors sum in another order, hence the tolerance.
"""

from dataclasses import replace

import pytest

from longreach.api import (
    Coupled,
    ExecutionConfig,
    OptimizerConfig,
    ParityScratchpad,
    ScaledSoftmaxConfig,
    Span,
    TrainConfig,
    TransformerConfig,
)
from longreach.api import build_model as build
from longreach.training import Hooks, TrainingStream, build_optimizer, train

CURVE = [1.23803, 1.087186, 0.807308, 0.707637, 0.617048, 0.621257]


def curve() -> list[float]:
    task, policy = ParityScratchpad(), Coupled(max_id=100)
    model = build(
        TransformerConfig(layers=2, width=32, heads=2, attention=ScaledSoftmaxConfig()), len(task.vocabulary), seed=0
    )
    optimizer = OptimizerConfig(lr=3e-3, warmup=5)
    config = replace(TrainConfig(), lengths=Span(1, 8), steps=60, batch_size=16, optimizer=optimizer)
    losses: list[float] = []
    hooks = Hooks(
        log=lambda step, values: losses.append(values["loss"]),
        validate=lambda step: 0.0,
        save=lambda step, score: None,
        progress=lambda step, loss: None,
        should_stop=lambda: False,
    )
    data = TrainingStream(task, policy, tuple(range(1, 9)), 16, 0, "cpu")
    train(model, build_optimizer(optimizer, model), data, config, hooks, execution=ExecutionConfig(log_every=10))
    return losses


def test_the_loss_curve_is_the_stored_one():
    assert curve() == pytest.approx(CURVE, rel=2e-3)


if __name__ == "__main__":
    print([round(loss, 6) for loss in curve()])
