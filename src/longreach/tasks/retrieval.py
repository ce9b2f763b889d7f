"""What tasks of looking things up share: statements numbered, and statements hidden among filler."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.seeding import Draws
from longreach.tasks.base import Form, Sample, Worksheet

_NOWHERE = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Retrieval(Worksheet):
    """Base of tasks in which a statement must be found.  The first level of IDs numbers the statements."""

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        """As in every worksheet, but the sign does not know which statement comes first: that is a part of the task."""
        ids = super().coupling(sample, form)
        ids[:, 0] = ids[:, 0].masked_fill(self.step(sample) == -1, 0)
        return ids


def scatter(
    draws: Draws, purpose: str, length: Int[Tensor, "b"], count: Int[Tensor, "b"], most: int, size: int
) -> Int[Tensor, "b {most}"]:
    """Where `count` statements of `size` tokens begin among `length` filler tokens: each has any number of those in
    front of it, with equal probability.  The rest of `most` begins nowhere."""
    number = torch.arange(most, device=length.device)
    before = draws.below(purpose, length[:, None] + 1, most).masked_fill(number >= count[:, None], _NOWHERE)
    return before.sort(dim=1).values + size * number


def hide(
    filler: Int[Tensor, "b n"], statements: Int[Tensor, "b m size"], start: Int[Tensor, "b m"]
) -> Int[Tensor, "b t"]:
    """The statements at their places and filler everywhere else."""
    m, size = statements.shape[1:]
    width = filler.shape[1] + m * size
    index = torch.arange(width, device=filler.device)
    begins = torch.zeros(len(filler), width + 1, dtype=torch.long, device=filler.device)
    begun = begins.scatter_(1, start.clamp(max=width), 1)[:, :width].cumsum(1)
    latest = (begun - 1).clamp(min=0)
    token = index - start.gather(1, latest)
    said = statements.flatten(1).gather(1, latest * size + token.clamp(0, size - 1))
    rest = filler.gather(1, (index - size * begun).clamp(0, filler.shape[1] - 1))
    return torch.where((begun > 0) & (token < size), said, rest)


def numbered(begins: Bool[Tensor, "b t"], size: int) -> tuple[Int[Tensor, "b t"], Int[Tensor, "b t"]]:
    """The number of the statement that a token belongs to and its number within it, both from 1; 0 outside."""
    index = torch.arange(begins.shape[1], device=begins.device)
    token = index - torch.where(begins, index, -size).cummax(1).values
    return begins.cumsum(1).masked_fill(token >= size, 0), (token + 1).masked_fill(token >= size, 0)
