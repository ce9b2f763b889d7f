"""Moving among the IDs of a prompt: up or down by a few steps, whatever their gaps."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

_NONE = 1 << 60
"""Stands behind every ID that can occur."""


@dataclass(frozen=True)
class Ladder:
    """The distinct IDs of each prompt at one level, in order; reserved IDs are no rungs.

    Under increasing relabelling the next ID is not the current one plus 1 but the next rung.  Beyond the last
    rung IDs go on by 1; nothing lies below the first.
    """

    rungs: Int[Tensor, "b n"]
    """Increasing; rows with fewer IDs end in a number beyond all IDs."""
    count: Int[Tensor, "b 1"]

    @classmethod
    def of(cls, ids: Int[Tensor, "b t"], counts: Bool[Tensor, "b t"]) -> "Ladder":
        ordered = ids.masked_fill(~counts, _NONE).sort(1).values
        again = torch.zeros_like(ordered, dtype=torch.bool)
        again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        rungs = ordered.masked_fill(again, _NONE).sort(1).values
        return cls(rungs, (rungs < _NONE).sum(1, keepdim=True))

    def has(self, ids: Int[Tensor, "b t"]) -> Bool[Tensor, "b t"]:
        rank = torch.searchsorted(self.rungs, ids.contiguous()).clamp(max=self.rungs.shape[1] - 1)
        return self.rungs.gather(1, rank) == ids

    def move(self, ids: Int[Tensor, "b t"], steps: int) -> Int[Tensor, "b t"]:
        """The ID so many rungs above (below, if negative)."""
        if steps == 0:
            return ids
        last = (self.count - 1).clamp(min=0)
        top = self.rungs.gather(1, last).masked_fill(self.count == 0, 0)
        rank = torch.searchsorted(self.rungs, ids.contiguous())
        # between two rungs, one step up is the upper and one step down the lower
        rank = rank - (~self.has(ids)).long() * (steps > 0)
        rank = torch.where(ids > top, last + ids - top, rank) + steps
        inside = self.rungs.gather(1, rank.clamp(min=0).minimum(last)).masked_fill(self.count == 0, 0)
        return torch.where(rank > last, top + rank - last, inside)
