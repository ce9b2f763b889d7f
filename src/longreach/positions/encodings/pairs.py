"""A bias of single pairs of query and key, as a kernel asks for it that never writes scores out."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_COPIES = 1024
"""Of a learned table: so many that queries which are in work at the same time seldom share one."""


class Pair(NamedTuple):
    """A query and a key, as one head sees them at one level of IDs.  All are whole numbers."""

    head: Tensor
    query: Tensor
    """The query's place in its sequence."""
    come: Tensor
    """The query's ID minus the one of the sequence's first token."""
    distance: Tensor
    """The query's ID minus the key's."""

    @property
    def copy(self) -> Tensor:
        """Which copy of a learned table it reads: see `in_copies`."""
        return self.query % _COPIES


PairBias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A bias as a kernel asks for it, one score at a time: from the numbers of sequence, head, query and key."""


def pairs_over_levels(
    query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"], of_level: Callable[[Pair, int], Tensor]
) -> PairBias:
    """What each level says about a pair, added up: `sum_over_levels` for single pairs."""
    first = key_ids[:, :, :1]
    # half as wide from here on: a kernel turns 64 bits into a float as slowly as it takes an exponential
    queries, keys = ((ids - first).int().unbind(1) for ids in (query_ids, key_ids))

    def of_pair(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        biases = []
        for level, (of_queries, of_keys) in enumerate(zip(queries, keys, strict=True)):
            come = of_queries[sequence, query]
            biases.append(of_level(Pair(head, query, come, come - of_keys[sequence, key]), level))
        return sum(biases[1:], biases[0])

    return of_pair


def in_copies(table: Float[Tensor, "*n"]) -> Float[Tensor, "copies *n"]:
    """A learned table as single pairs read it, in the copy of their query: `[pair.copy, ...]`.

    Every score adds to the gradient of the entry that it read.  In a single table most would wait for each other; the
    gradients of copies, which autograd sums, are added to side by side.
    """
    copies = table.expand(_COPIES, *table.shape)
    return copies.contiguous() if copies.requires_grad else copies


def adds_in_any_order() -> bool:
    """Whether the gradients of copies may be summed in an order that changes from run to run, as kernels do it."""
    return not torch.are_deterministic_algorithms_enabled()
