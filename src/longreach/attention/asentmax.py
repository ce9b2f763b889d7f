"""Entmax whose scores grow as each state asks for."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention.base import Attention
from longreach.attention.entmax import EntmaxConfig, SparseWeights
from longreach.config.registry import register
from longreach.positions.encodings import Shape


@register("attention", "asentmax")
@dataclass(frozen=True, kw_only=True)
class AsEntmaxConfig(EntmaxConfig):
    """Scores times (1 + b (log n)^g), n the keys a query sees, b = softplus(W x) and g = 2 tanh(V x) from the state x.

    With entmax: keys far below the best have no weight at all (Vasylenko et al., ICLR 2026, adaptive scalable entmax).
    Two things differ from the authors' released code unless `as_released` is set: the code computes log(n + 1), so that
    a single key does not give log 1 = 0, and its projections W and V have no biases.
    """

    paper = "Vasylenko et al., ICLR 2026"

    as_released: bool = False
    """Compute log(n + 1) and project without biases, as the authors' code; otherwise log n, with biases."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start != type(self).start:
            raise ValueError("asentmax.start has no meaning: how fast scores grow is read off the state")

    def build(self, shape: Shape) -> Attention:
        return AsEntmax(shape, self)


class AsEntmax(SparseWeights):
    def __init__(self, shape: Shape, config: AsEntmaxConfig) -> None:
        super().__init__(shape.heads, config)
        self.as_released = config.as_released
        self.speed = nn.Linear(shape.width, shape.heads, bias=not config.as_released)
        self.bend = nn.Linear(shape.width, shape.heads, bias=not config.as_released)

    def grow(self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"]) -> Float[Tensor, "b h q"]:
        speed, bend = nn.functional.softplus(self.speed(states)), 2 * torch.tanh(self.bend(states))
        # a single key has all weight however scores grow
        counted = visible + 1 if self.as_released else visible.clamp(min=2)
        crowd = counted.float().log()[..., None]
        return (self.config.offset + speed * crowd**bend).transpose(1, 2)
