"""Err_l(h) = E[1 - h(X)_Y], exactly or by sampling.  It is at most the cross-entropy; 0-1 error is at most twice it."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.seeding import stream
from longreach.theory.heads import TheoryHead
from longreach.theory.laws import PlantedTask
from longreach.theory.words import number, words

_ROWS = 1 << 13  # sequences at a time


class SampleMean(NamedTuple):
    """A mean over samples and its standard error."""

    mean: float
    se: float


def err_exact(head: TheoryHead, task: PlantedTask, length: int, max_states: int = 1 << 20) -> float:
    """The error, by listing all sequences of possible tokens."""
    positions, law = task.q_pos.support(length)
    planted = words(task.vocab_size, task.k)[task.q_voc > 0]
    possible = (task.mu > 0).nonzero()[:, 0] if length > task.k else torch.empty(0, dtype=torch.long)
    possible = torch.unique(torch.cat([possible, planted.flatten()]))
    states = len(possible) ** length
    if states > max_states:
        raise ValueError(
            f"max_states must be at least {states} for an exact error at length {length}, got {max_states}"
        )
    total = 0.0
    for start in range(0, states, _ROWS):
        index = torch.arange(start, min(start + _ROWS, states))
        places = len(possible) ** torch.arange(length)
        tokens = possible[index[:, None] // places % len(possible)]
        joint = _joint(task, tokens, positions, law)
        seen = joint.sum(1) > 0
        total += float((joint[seen] * head.losses(tokens[seen])).sum())
    return total


def err_mc(
    head: TheoryHead, task: PlantedTask, length: int, samples: int, seed: int = 0, argmax: bool = False
) -> SampleMean:
    """The error over samples.  With `argmax` the 0-1 error: a label that is not the only best one is wrong."""
    if samples < 2:
        raise ValueError(f"samples must be at least 2, got {samples}")
    draws = stream(seed, "theory errors", torch.arange(samples))
    rows = max(1, (1 << 22) // length)
    losses = []
    for start in range(0, samples, rows):
        tokens, labels, _ = task.sample(length, draws.rows(start, start + rows))
        loss = head.losses(tokens)
        own = loss.gather(1, labels[:, None])
        if argmax:
            own = (loss.scatter(1, labels[:, None], torch.inf).amin(1, keepdim=True) <= own).double()
        losses.append(own[:, 0])
    loss = torch.cat(losses)
    return SampleMean(float(loss.mean()), float(loss.std()) / samples**0.5)


def _joint(
    task: PlantedTask, tokens: Int[Tensor, "b l"], positions: Int[Tensor, "n k"], law: Float[Tensor, "n"]
) -> Float[Tensor, "b c"]:
    """The probability of each sequence with each label."""
    joint = torch.zeros(len(tokens), task.num_classes, dtype=torch.float64)
    background = task.mu[tokens]
    for planted, probability in zip(positions, law, strict=True):
        word = number(tokens[:, planted], task.vocab_size)
        rest = background.index_fill(1, planted, 1.0).prod(1)
        joint.scatter_add_(1, task.g_star[word][:, None], (probability * task.q_voc[word] * rest)[:, None])
    return joint
