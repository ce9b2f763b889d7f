"""The parts of a run, made from its configuration."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import torch

from longreach.model import Model, build_model
from longreach.runs.recipe import RunConfig
from longreach.training import StackedStream, TrainConfig, TrainingStream, legal_lengths

_MOST_TOGETHER = 8
"""The first result comes with the last: whoever wants more of them together says --stack."""
_STATES = 1 << 29
"""Numbers in the residual streams of all layers and models of a stack.  A guess: at 40 bytes kept for each, 20 GiB."""


def training_data(config: RunConfig, batch_size: int, seeds: Sequence[int], device: str) -> TrainingStream:
    lengths = legal_lengths(config.task, config.train.lengths)
    first, *others = seeds
    prime = config.train.prime
    return TrainingStream(config.task, config.ids, lengths, batch_size, first, device, prime, tuple(others))


def new_model(config: RunConfig, seed: int, device: str) -> Model:
    sizes = config.ids.level_sizes(config.task)
    return build_model(config.model, len(config.task.vocabulary), seed, sizes, config.ids.max_id, device)


def common_training(configs: Sequence[RunConfig]) -> tuple[TrainConfig, list[float] | None]:
    """How the runs of a stack are trained: at the largest of their rates, and the others' as shares of it."""
    first, rates = configs[0].train, [config.train.optimizer.lr for config in configs]
    largest = max(rates)
    settings = replace(first, optimizer=replace(first.optimizer, lr=largest))
    return settings, [rate / largest for rate in rates] if min(rates) < largest else None


def stacked_data(runs: Sequence[tuple[RunConfig, int]], device: str) -> TrainingStream | StackedStream:
    """For each run, in order, the batches that it would have alone."""
    parts = []
    for _, same in groupby(runs, key=lambda run: (run[0].task, run[0].ids, run[0].train.lengths, run[0].train.prime)):
        configs, seeds = zip(*same, strict=True)
        parts.append(training_data(configs[0], configs[0].train.batch_size, seeds, device))
    return parts[0] if len(parts) == 1 else StackedStream(tuple(parts))


def runs_together(config: RunConfig, device: str) -> int:
    """How many runs like this one are best trained as one: on a GPU so many that a step is worth launching, and few
    enough to fit; on a CPU, which one model keeps busy, one."""
    if torch.device(device).type != "cuda":
        return 1
    longest = max(legal_lengths(config.task, config.train.lengths))
    states = config.train.batch_size * config.task.max_tokens(longest) * config.model.width * config.model.depth
    return max(1, min(_MOST_TOGETHER, _STATES // states))
