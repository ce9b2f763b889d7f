"""Learned kernels of distance (KERPLE; Chi et al., NeurIPS 2022)."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from longreach.config.registry import register
from longreach.positions.encodings.base import BiasEncoding, Encoding, EncodingConfig, Shape, sum_over_levels
from longreach.positions.encodings.pairs import Pair, PairBias, adds_in_any_order, in_copies, pairs_over_levels


@register("encoding", "kerple")
@dataclass(frozen=True, kw_only=True)
class KerpleConfig(EncodingConfig):
    """Scores fall with the distance D = |i - j| of IDs, by a log(1 + b D) or by a D^b; a and b are learned per head.

    All layers share them here.
    """

    paper = "Chi et al., NeurIPS 2022"

    kernel: Literal["log", "power"] = "log"
    """log: a, b > 0; power: a > 0 and 0 < b < 2."""

    def build(self, shape: Shape) -> Encoding:
        return Kerple(shape, self.kernel)


class Kerple(BiasEncoding):
    def __init__(self, shape: Shape, kernel: Literal["log", "power"]) -> None:
        super().__init__()
        self.kernel = kernel
        self.raw_a = nn.Parameter(torch.zeros(shape.levels, shape.heads))
        self.raw_b = nn.Parameter(torch.zeros(shape.levels, shape.heads))
        """Before they are made positive."""

    def initialise(self) -> None:
        """Spread over the heads, so that some look near and some look far."""
        with torch.no_grad():
            for raw in (self.raw_a, self.raw_b):
                raw.copy_(torch.linspace(-3, 1, raw.shape[1]).expand_as(raw))

    def bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Float[Tensor, "b h q k"]:
        a, b = (weights[..., None, None] for weights in self.weights())  # [g, h, 1, 1]
        return sum_over_levels(query_ids, key_ids, lambda d, level: self.fall(a[level], b[level], d[:, None]))

    def pair_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> PairBias | None:
        if self.learns and not adds_in_any_order():
            return None
        a, b = ([in_copies(of_level) for of_level in weights] for weights in self.weights())

        def of_level(pair: Pair, level: int) -> Tensor:
            return self.fall(a[level][pair.copy, pair.head], b[level][pair.copy, pair.head], pair.distance)

        return pairs_over_levels(query_ids, key_ids, of_level)

    def weights(self) -> tuple[Float[Tensor, "g h"], Float[Tensor, "g h"]]:
        """a and b."""
        return softplus(self.raw_a), softplus(self.raw_b) if self.kernel == "log" else 2 * self.raw_b.sigmoid()

    def fall(self, a: Tensor, b: Tensor, distance: Tensor) -> Tensor:
        """The formula."""
        far = distance.abs().to(a.dtype)
        if self.kernel == "log":
            return -a * (b * far).log1p()
        return -a * torch.where(far > 0, far.clamp(min=1) ** b, 0.0)  # IDs differ by at least 1
