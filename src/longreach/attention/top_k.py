"""Softmax over the few largest scores: all other keys get a weight of exactly zero, however many there are."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.attention.base import Attention, ScaledSoftmax, ScaledSoftmaxConfig
from longreach.config.registry import register
from longreach.positions.encodings import Shape

_TIE = 1e-5
"""Scores are equal if they differ by less than this share of the row's largest absolute score (at least 1).

Rounding is about 1e-6 of that score in float32.  Exact comparison would let the order of sums decide ties, and so the
CPU, the chunk size and the batch.
"""


@register("attention", "top_k")
@dataclass(frozen=True, kw_only=True)
class TopKConfig(ScaledSoftmaxConfig):
    """Each query reads the `keep` keys with the largest scores (Gupta et al., 2021), which grow as in `scaled_softmax`.

    Distractors cannot dilute a head as long as their scores rank below the kept keys.  Keys that tie with the last kept
    key are all kept; scores tie if they differ by less than 1e-5 of the largest absolute score.
    """

    paper = "Gupta et al., 2021"

    keep: int = 16
    """Number of keys that a query reads, ties excepted."""

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
            largest = scores.detach().masked_fill(scores == -torch.inf, 0).abs().amax(-1, keepdim=True)
            edge = scores.detach().topk(self.keep, dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < edge - _TIE * largest.clamp(min=1), -torch.inf)
        return scores.softmax(-1)
