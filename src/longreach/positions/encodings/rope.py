"""Rotary position embeddings (Su et al., 2021) over position IDs."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config import Bounds
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings.base import Encoding, EncodingConfig, Rotation, Shape, geometric
from longreach.seeding import stream


@register("encoding", "rope")
@dataclass(frozen=True, kw_only=True)
class RopeConfig(EncodingConfig):
    """Queries and keys are turned by angles proportional to their IDs; every level has its own frequencies."""

    paper = "Su et al., 2021"

    base: Annotated[float, Bounds(high=1e15)] = 10_000.0
    """Ratio of the longest wavelength to the shortest."""
    spectrum: Literal["geometric", "random"] = "geometric"
    """Frequencies from 1 down to 1/base, as published; or spread at random over (0, pi), the same for every model
    (ours): far better at telling equal IDs from unequal ones, blind to how far apart those are."""
    fraction: float = 1.0
    """Share of each head's dimensions that is turned (GPT-NeoX-20B: 0.25)."""

    def __post_init__(self) -> None:
        if self.base <= 1:
            raise ValueError(f"rope.base must be above 1, got {self.base}")
        if self.spectrum == "random" and self.base != type(self).base:
            raise ValueError(f"rope.base={self.base} has no meaning with a random spectrum")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"rope.fraction must be in (0, 1], got {self.fraction}")

    def build(self, shape: Shape) -> Encoding:
        return Rope(self.pairs_of(shape), self)

    def pairs_of(self, shape: Shape) -> list[int]:
        """For each level, how many pairs of dimensions turn with its IDs."""
        turned = int(shape.head_dim * self.fraction)
        pairs = turned // 2
        # a level of a few IDs needs few frequencies to tell them apart: the others get the rest
        growing = sum(size == 0 for size in shape.level_sizes)
        bounded = max(1, pairs // 8) if growing else pairs // shape.levels
        rest = pairs - bounded * (shape.levels - growing)
        spare = rest % growing if growing else 0  # growing levels get equal shares; a bounded one takes what is left
        if turned == 0 or turned % 2 or rest < growing or (spare and growing == shape.levels):
            raise BadInput(
                f"rope turns {turned} of {shape.head_dim} dimensions of a head,"
                f" which do not split into pairs for {shape.levels} ID level(s)"
            )
        shares = [bounded if size else rest // growing for size in shape.level_sizes]
        if spare:
            shares[next(level for level, size in enumerate(shape.level_sizes) if size)] += spare
        return shares


class Rope(Encoding):
    """`pairs` has, for each level, the number of pairs of dimensions that turn with its IDs."""

    def __init__(self, pairs: list[int], config: RopeConfig) -> None:
        super().__init__()
        self.pairs, self.config = pairs, config

    def frequencies(self, level: int, device: torch.device) -> Float[Tensor, "pairs"]:
        """Radians per ID."""
        if self.config.spectrum == "geometric":
            return geometric(2 * self.pairs[level], self.config.base, device)
        draws = stream(0, "rope/frequencies", torch.full((1,), level, device=device))
        return math.pi * draws.uniform("frequency", self.pairs[level])[0]

    def rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation:
        # in fp64: fp32 angles at ID 1,000,000 already change scores by 1%
        away = (ids - origin).double()
        angles = [away[:, level, :, None] * self.frequencies(level, ids.device) for level in range(len(self.pairs))]
        beside = torch.cat(angles, dim=-1) if len(angles) > 1 else angles[0]  # the levels side by side
        cos, sin = (torch.empty_like(beside, dtype=torch.float32) for _ in range(2))
        torch.cos(beside, out=cos)  # rounded on the way
        torch.sin(beside, out=sin)
        return cos[:, None], sin[:, None]

    def turning(self, x: Float[Tensor, "b h t d"], level: int) -> Float[Tensor, "b h t r"]:
        """The dimensions of queries or keys that turn with a level's IDs."""
        half, first = sum(self.pairs), sum(self.pairs[:level])
        last = first + self.pairs[level]
        return torch.cat([x[..., first:last], x[..., half + first : half + last]], dim=-1)


def turn_further(x: Float[Tensor, "b h t r"], angles: Float[Tensor, "b t p"]) -> Float[Tensor, "b h t r"]:
    """Turn what `turning` gave by other angles on top of its own."""
    cos, sin = angles.cos().to(x.dtype)[:, None], angles.sin().to(x.dtype)[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
