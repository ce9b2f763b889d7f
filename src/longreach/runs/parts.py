"""The parts of a run, made from its configuration."""

from collections.abc import Sequence

import torch

from longreach.errors import BadInput
from longreach.model import Model, build_model, check_stackable
from longreach.runs.recipe import RunConfig
from longreach.train import TrainingStream, legal_lengths

_MOST_TOGETHER = 8
"""More gain little, and the first result comes with the last."""
_STATES = 1 << 29
"""Numbers in the residual streams of all layers and models of a stack; a step keeps about 40 bytes for each."""


def training_data(config: RunConfig, batch_size: int, seeds: Sequence[int], device: str) -> TrainingStream:
    lengths = legal_lengths(config.task, config.train.lengths)
    first, *others = seeds
    prime = config.train.prime
    return TrainingStream(config.task, config.ids, lengths, batch_size, first, device, prime, tuple(others))


def new_model(config: RunConfig, seed: int, device: str) -> Model:
    sizes = config.ids.level_sizes(config.task)
    return build_model(config.model, len(config.task.vocabulary), seed, sizes, config.ids.max_id, device)


def seeds_together(config: RunConfig, seeds: int, device: str) -> int:
    """How many seeds are best trained as one: on a GPU so many that a step is worth launching, and few enough that they
    fit; on a CPU, which one model keeps busy, one."""
    if torch.device(device).type != "cuda":
        return 1
    try:
        check_stackable(new_model(config, seed=0, device="cpu"))
    except BadInput:
        return 1
    longest = max(legal_lengths(config.task, config.train.lengths))
    states = config.train.batch_size * config.task.max_tokens(longest) * config.model.width * config.model.depth
    return max(1, min(seeds, _MOST_TOGETHER, _STATES // states))
