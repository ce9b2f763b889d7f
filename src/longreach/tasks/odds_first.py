"""Every other symbol first, then the rest."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.tasks.rearrangement import Rearrangement


@register("task", "odds_first")
@dataclass(frozen=True, kw_only=True)
class OddsFirst(Rearrangement):
    """The first, third, fifth ... symbol, then the second, fourth ...  c a b d e ; =  ->  c b e a d .

    `length` counts the symbols.  1-sparse.  The coupling, a symbol and its copy share an ID, is ours after Cho et al.
    (NeurIPS 2024).  The code of Deletang et al. writes the second, fourth ... symbols first, unlike its description.
    """

    paper = "Deletang et al., ICLR 2023"

    def source(self, step: Int[Tensor, "#b t"], length: Int[Tensor, "b 1"]) -> Int[Tensor, "b t"]:
        odds = (length + 1) // 2
        return torch.where(step < odds, 2 * step, 2 * (step - odds) + 1)

    def rearrange(self, symbols: Sequence[str]) -> list[str]:
        return [*symbols[::2], *symbols[1::2]]
