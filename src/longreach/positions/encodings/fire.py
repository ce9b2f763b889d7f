"""Functional interpolation of distances (FIRE; Li et al., ICLR 2024)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.config import Size
from longreach.config.registry import register
from longreach.positions.encodings.base import BiasEncoding, Encoding, EncodingConfig, Shape, sum_over_levels
from longreach.positions.encodings.pairs import Pair, PairBias, pairs_over_levels

_EPS = 1e-6


@register("encoding", "fire")
@dataclass(frozen=True, kw_only=True)
class FireConfig(EncodingConfig):
    """A small net of the distance relative to how far the query has come: f(log(1 + c|i - j|) / log(1 + c max(i, L))).

    c and the threshold L are learned.  i counts from the ID of the sequence's first token, so that shifting all IDs
    changes nothing: where IDs count from 0, as the authors' do, that is the same.
    """

    paper = "Li et al., ICLR 2024"

    hidden: Size = 32
    """Hidden units of the net."""
    c: float = 0.1
    """Initial c."""
    threshold: float = 512.0
    """Initial L: shorter sequences are not stretched."""

    def __post_init__(self) -> None:
        for name in ("hidden", "c", "threshold"):
            if getattr(self, name) <= 0:
                raise ValueError(f"fire.{name} must be positive, got {getattr(self, name)}")

    def build(self, shape: Shape) -> Encoding:
        return Fire(shape, self)


class Fire(BiasEncoding):
    def __init__(self, shape: Shape, config: FireConfig) -> None:
        super().__init__()
        self.copies = 8 + 4 * config.hidden // shape.heads
        self.levels = nn.ModuleList([_Net(shape.heads, config) for _ in range(shape.levels)])

    def bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Float[Tensor, "b h q k"]:
        come = (query_ids - key_ids[:, :, :1]).abs()  # the first key is the sequence's first token, in a cache too
        with torch.autocast(query_ids.device.type, enabled=False):  # bf16 tells only a few distances apart
            return sum_over_levels(query_ids, key_ids, lambda d, level: self.levels[level](d, come[:, level]))

    def pair_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> PairBias | None:
        """For evaluation: a pair reads every unit of the net, and torch differentiates what a pair reads once."""
        if self.learns:
            return None
        levels = [cast(_Net, net).of_pair() for net in self.levels]
        return pairs_over_levels(query_ids, key_ids, lambda pair, level: levels[level](pair))


class _Net(nn.Module):
    """One level: a piecewise linear function of a number from 0 to 1, for each head."""

    def __init__(self, heads: int, config: FireConfig) -> None:
        super().__init__()
        self.config = config
        self.log_c = nn.Parameter(torch.zeros(()))
        self.log_threshold = nn.Parameter(torch.zeros(()))
        """Logarithms, so that both stay positive."""
        self.slope = nn.Parameter(torch.zeros(config.hidden))
        self.shift = nn.Parameter(torch.zeros(config.hidden))
        self.out = nn.Parameter(torch.zeros(config.hidden, heads))
        self.offset = nn.Parameter(torch.zeros(heads))

    def initialise(self) -> None:
        """Kinks spread over 0..1, rising and falling in turn; no bias at first, and gradients everywhere."""
        nn.init.constant_(self.log_c, math.log(self.config.c))
        nn.init.constant_(self.log_threshold, math.log(self.config.threshold))
        with torch.no_grad():
            number = torch.arange(self.config.hidden)
            self.slope.copy_(1.0 - 2.0 * (number % 2))
            self.shift.copy_(-self.slope * (number + 0.5) / self.config.hidden)
        nn.init.zeros_(self.out)
        nn.init.zeros_(self.offset)

    def forward(self, distance: Int[Tensor, "b q k"], come: Int[Tensor, "b q"]) -> Float[Tensor, "b h q k"]:
        near = _near(self.log_c.exp(), self.log_threshold.exp(), distance, come[..., None])
        hidden = (near[..., None] * self.slope + self.shift).relu()
        return (hidden @ self.out + self.offset).permute(0, 3, 1, 2)

    def of_pair(self) -> Callable[[Pair], Tensor]:
        """The same for single pairs: unit after unit, since a pair has no products of matrices."""
        c, threshold = self.log_c.exp(), self.log_threshold.exp()
        slope, shift, out, offset = self.slope, self.shift, self.out, self.offset

        def bias(pair: Pair) -> Tensor:
            near = _near(c, threshold, pair.distance, pair.come.abs())
            total = offset[pair.head]
            for unit in range(len(slope)):
                number = torch.full_like(pair.head, unit)
                total = total + (near * slope[number] + shift[number]).relu() * out[number, pair.head]
            return total

        return bias


def _near(c: Tensor, threshold: Tensor, distance: Tensor, come: Tensor) -> Tensor:
    """How far a key is from a query, as a share of how far the query has come."""
    longest = torch.maximum(come.to(c.dtype), threshold)
    return (c * distance.abs().to(c.dtype)).log1p() / ((c * longest).log1p() + _EPS)
