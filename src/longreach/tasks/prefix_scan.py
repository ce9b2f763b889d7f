"""Prefix products: what has been combined so far, at every place of a sequence at once."""

from collections.abc import Callable

import torch
from torch import Tensor


def scan(items: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Item i [b, n, ...] becomes the combination of items 0 to i, in this order, for any associative `combine`.

    Neighbours are paired, the pairs scanned in the same way, and the places between filled in: 2n combinations in
    2 log2(n) steps.
    """
    n = items.shape[1]
    if n == 1:
        return items
    pairs = scan(combine(items[:, 0 : n - 1 : 2], items[:, 1::2]), combine)
    scanned = torch.empty_like(items)
    scanned[:, 0] = items[:, 0]
    scanned[:, 1::2] = pairs
    if n > 2:
        scanned[:, 2::2] = combine(pairs[:, : (n - 1) // 2], items[:, 2::2])
    return scanned


def one_after_the_other(first: Tensor, second: Tensor) -> Tensor:
    """Maps of small sets to themselves, written as [..., what each element goes to]: first this, then that."""
    return second.gather(-1, first)
