"""Reversing: the symbol written next stands ever further away."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.tasks.base import Sample
from longreach.tasks.rearrangement import Rearrangement


@register("task", "reverse")
@dataclass(frozen=True, kw_only=True)
class Reverse(Rearrangement):
    """Write the input backwards.  ; c a b =  ->  b a c .

    `length` counts the symbols.  1-sparse.  Coupling as in Cho et al. (NeurIPS 2024): a symbol and its mirror image
    share an ID, and the sign has the next one.  The mark `;`, ours, stands in front, where the answer ends.
    """

    paper = "Cho et al., NeurIPS 2024"
    mark_in_front = True

    def source(self, step: Int[Tensor, "#b t"], length: Int[Tensor, "b 1"]) -> Int[Tensor, "b t"]:
        return length - step

    def rearrange(self, symbols: Sequence[str]) -> list[str]:
        return [*reversed(symbols)]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return torch.where(self.step(sample) >= 0, self._source(sample) + 1, index + 1)[:, None]
