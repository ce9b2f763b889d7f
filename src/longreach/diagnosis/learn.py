"""From a file of samples to a model that has learnt them, so that it can be asked what it reads."""

import math
from collections.abc import Callable, Sequence

from longreach.diagnosis.recorded import Recorded
from longreach.execution import ExecutionConfig
from longreach.model import Model, TransformerConfig, build_model
from longreach.positions.encodings import RopeConfig
from longreach.positions.ids import Sequential
from longreach.training import Hooks, OptimizerConfig, Step, TrainConfig, TrainingStream, build_optimizer, train

IDS = Sequential()
"""The learner counts tokens: the file's own IDs, if any, are judged and not used."""


def learn(rows: Recorded, lengths: Sequence[int], steps: int, seed: int, progress: Callable[[int, str], None]) -> Model:
    """Two layers, small enough for minutes on a CPU; what it cannot learn is told by its accuracy."""
    config = TrainConfig(steps=steps, optimizer=OptimizerConfig(lr=1e-3, warmup=min(100, steps)))
    shape = TransformerConfig(layers=2, width=128, heads=4, encoding=RopeConfig())
    model = build_model(shape, len(rows.vocabulary), seed)
    data = TrainingStream(rows, IDS, tuple(lengths), batch_size=64, seed=seed, device="cpu")
    hooks = Hooks(
        log=lambda done, values: None,
        validate=lambda done: math.nan,
        save=lambda done, score: None,
        progress=lambda done, loss: progress(done, f"loss {loss:.3g}"),
        should_stop=lambda: False,
    )
    step = Step(model, build_optimizer(config.optimizer, model), data, config)
    train(step, config, ExecutionConfig(), [hooks])
    return model
