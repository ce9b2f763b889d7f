"""A training batch, and the places in it where tokens and IDs must be predicted."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.seeding import Draws
from longreach.tasks import Sample, Task

NO_LABEL = -100
"""The label of a place that is padding: `cross_entropy` gives it no loss."""


@dataclass(frozen=True)
class Batch:
    """Samples of one task with their position IDs."""

    sample: Sample
    ids: Int[Tensor, "b g t"]
    draws: Draws
    """For random choices of an objective."""
    task: Task

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply a function to every tensor."""
        return replace(self, sample=self.sample.map(change), ids=change(self.ids), draws=Draws(change(self.draws.key)))

    def tensors(self) -> list[Tensor]:
        """Return all tensors in the order in which `map` visits them."""
        return [*self.sample.tensors(), self.ids, self.draws.key]

    def depends_on(self) -> Bool[Tensor, "b t t"]:
        """Return which tokens each answer token depends on."""
        return self.task.depends_on(self.sample)


class Places(NamedTuple):
    """Where tokens must be predicted, and which.  Rows with fewer places than others are padded."""

    at: Int[Tensor, "b a"]
    valid: Bool[Tensor, "b a"]
    labels: Int[Tensor, "b a"]
    """The tokens that follow; `NO_LABEL` at padding."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "Places":
        """Apply a function to every tensor."""
        return Places(*(change(tensor) for tensor in self))


def token_targets(sample: Sample) -> Bool[Tensor, "b s"]:
    """Return where the next token must be predicted."""
    return (sample.answer & ~sample.given)[:, 1:]


def id_targets(sample: Sample, on: Literal["answer", "all"] = "answer") -> Bool[Tensor, "b s"]:
    """Return where the next token's IDs must be predicted: given tokens too, but not the last, which is never read."""
    index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
    read = index < sample.num_tokens[:, None] - 1
    return ((sample.answer if on == "answer" else torch.ones_like(sample.answer)) & read)[:, 1:]


def token_places(sample: Sample, most: int | None = None) -> Places:
    """Return the places of `token_targets`; `most` as in `select`."""
    at, valid = select(token_targets(sample), most)
    return Places(at, valid, sample.tokens[:, 1:].gather(1, at).masked_fill(~valid, NO_LABEL))


def select(wanted: Bool[Tensor, "b t"], most: int | None = None) -> tuple[Int[Tensor, "b a"], Bool[Tensor, "b a"]]:
    """Return the wanted places of each row in order, and which of them are real.

    `a` is the largest number that a row wants, which is read on the host.  With `most`, a bound on that number, `a` is
    the bound: the shape does not depend on the values.
    """
    count = int(wanted.sum(1).max()) if most is None else min(most, wanted.shape[1])
    index = torch.arange(wanted.shape[1], device=wanted.device).expand(wanted.shape)
    so_far = wanted.cumsum(1)
    # the wanted places come first, then the others, each in order: a stable sort in one pass
    place = torch.where(wanted, so_far - 1, so_far[:, -1:] + index - so_far)
    at = torch.empty_like(place).scatter_(1, place, index)[:, :count]
    return at, wanted.gather(1, at)
