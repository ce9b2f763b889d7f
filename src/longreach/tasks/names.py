"""Names, for tasks whose tokens stand for things: how they are written, and drawn without repetition."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.seeding import Draws

LAST = torch.iinfo(torch.int64).max
"""A key that sorts behind every random key."""


def letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    word = ""
    while number >= 0:
        word = chr(ord("a") + number % 26) + word
        number = number // 26 - 1
    return word


def smallest(keys: Int[Tensor, "b n"], count: int) -> Int[Tensor, "b {count}"]:
    """Indices of the smallest keys, in their order: `count` distinct indices at random."""
    return keys.topk(count, dim=1, largest=False).indices


def renew(
    names: Int[Tensor, "b n"], keep: Bool[Tensor, "b n"], num_names: int, draws: Draws, purpose: str
) -> Int[Tensor, "b n"]:
    """Other names where `keep` is False, by the law of distinct names given the kept ones."""
    keys = draws.bits(purpose, num_names)
    kept = torch.zeros_like(keys, dtype=torch.bool).scatter_(1, names, keep)
    rank = ((~keep).cumsum(1) - 1).clamp(min=0)  # kept names stand last: no more are taken than are renewed
    return torch.where(keep, names, smallest(keys.masked_fill(kept, LAST), names.shape[1]).gather(1, rank))
