"""Softmax over the few largest scores: what is not among them has no weight at all, however much of it there is."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.attention.base import Attention
from longreach.attention.scaled_softmax import ScaledSoftmax, ScaledSoftmaxConfig
from longreach.positions.encodings import Shape
from longreach.registry import register


@register("attention", "top_k")
@dataclass(frozen=True, kw_only=True)
class TopKConfig(ScaledSoftmaxConfig):
    """Each query reads the `keep` keys with the largest scores (Gupta et al., 2021), which grow as in `scaled_softmax`.

    A crowd of others cannot dilute what a head reads as long as it ranks below.  Equal scores at the edge all stay.
    """

    paper = "Gupta et al., 2021"

    keep: int = 16
    """Keys that a query reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep < 1:
            raise ValueError(f"top_k.keep must be at least 1, got {self.keep}")

    def build(self, shape: Shape) -> Attention:
        return TopK(shape.heads, self)


class TopK(ScaledSoftmax):
    fused = False

    def __init__(self, heads: int, config: TopKConfig) -> None:
        super().__init__(heads, config)
        self.keep = config.keep

    def weigh(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        if scores.shape[-1] > self.keep:
            edge = scores.topk(self.keep, dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < edge, -torch.inf)
        return scores.softmax(-1)
