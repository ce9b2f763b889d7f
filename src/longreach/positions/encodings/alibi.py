"""Attention with linear biases (Press et al., ICLR 2022)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.positions.encodings.base import BiasEncoding, Encoding, EncodingConfig, Shape, sum_over_levels
from longreach.positions.encodings.pairs import PairBias, pairs_over_levels


@register("encoding", "alibi")
@dataclass(frozen=True, kw_only=True)
class AlibiConfig(EncodingConfig):
    """Scores fall by a slope times the distance of IDs, |i - j|; nothing is learned.

    Slopes are 2^(-8h/H) for heads h = 1..H, as published: where H is no power of two, those of the next smaller one and
    every second of the next larger.
    """

    paper = "Press et al., ICLR 2022"

    def build(self, shape: Shape) -> Encoding:
        return Alibi(shape.heads)


class Alibi(BiasEncoding):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Float[Tensor, "b h q k"]:
        by_head = self.slopes(query_ids.device)[:, None, None]
        return sum_over_levels(query_ids, key_ids, lambda distance, level: -by_head * distance.abs()[:, None])

    def pair_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> PairBias:
        by_head = self.slopes(query_ids.device)
        return pairs_over_levels(query_ids, key_ids, lambda pair, level: -by_head[pair.head] * pair.distance.abs())

    def slopes(self, device: torch.device) -> Float[Tensor, "h"]:
        """One per head."""
        whole = 2 ** math.floor(math.log2(self.heads))
        regular = torch.arange(1, whole + 1, device=device) * (-8 / whole)
        between = torch.arange(1, 2 * whole, 2, device=device) * (-4 / whole)
        return torch.cat([regular, between[: self.heads - whole]]).exp2()
