"""The parts of a run, made from its configuration."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import torch

from longreach.engine.stacked_training import MultiSeedStream, StackedStream
from longreach.model import Model, build_model, shape_model
from longreach.runs.recipe import RunConfig
from longreach.training import TrainConfig, TrainingStream, legal_lengths

_MOST_TOGETHER = 8
"""The first result comes with the last: whoever wants more of them together says --stack."""
_STATES = 1 << 29
"""Numbers in the residual streams of all layers and models of a stack.  A guess: at 40 bytes kept for each, 20 GiB."""


def training_data(config: RunConfig, seed: int, device: str, batch_size: int | None = None) -> TrainingStream:
    """Return the training data of a run; `batch_size` replaces the configured one."""
    lengths = legal_lengths(config.task, config.train.lengths)
    size = config.train.batch_size if batch_size is None else batch_size
    return TrainingStream(config.task, config.ids, lengths, size, seed, device, config.train.prime)


def new_model(config: RunConfig, seed: int, device: str) -> Model:
    """Return a run's model with fresh weights."""
    sizes = config.ids.level_sizes(config.task)
    return build_model(config.model, len(config.task.vocabulary), seed, sizes, config.ids.max_id, device)


def model_shape(config: RunConfig) -> Model:
    """Return a run's model without weights, which takes no memory."""
    sizes = config.ids.level_sizes(config.task)
    return shape_model(config.model, len(config.task.vocabulary), sizes, config.ids.max_id)


def common_training(configs: Sequence[RunConfig]) -> tuple[TrainConfig, list[float] | None]:
    """Return the settings of a stack, with the largest learning rate of its runs, and all rates as shares of it."""
    first, rates = configs[0].train, [config.train.optimizer.lr for config in configs]
    largest = max(rates)
    settings = replace(first, optimizer=replace(first.optimizer, lr=largest))
    return settings, [rate / largest for rate in rates] if min(rates) < largest else None


def stacked_data(runs: Sequence[tuple[RunConfig, int]], device: str) -> MultiSeedStream | StackedStream:
    """Return the data of a stack: for each run, in order, the batches that it has alone."""
    parts = []
    for _, same in groupby(runs, key=lambda run: (run[0].task, run[0].ids, run[0].train.lengths, run[0].train.prime)):
        configs, (first, *others) = zip(*same, strict=True)
        parts.append(MultiSeedStream.of(training_data(configs[0], first, device), others))
    return parts[0] if len(parts) == 1 else StackedStream(tuple(parts))


def runs_together(config: RunConfig, device: str) -> int:
    """How many runs like this one are best trained as one: on a GPU so many that a step is worth launching, and few
    enough to fit; on a CPU, which one model keeps busy, one."""
    if torch.device(device).type != "cuda":
        return 1
    longest = max(legal_lengths(config.task, config.train.lengths))
    states = config.train.batch_size * config.task.max_tokens(longest) * config.model.width * config.model.depth
    return max(1, min(_MOST_TOGETHER, _STATES // states))
