"""Rotary position embeddings (Su et al., 2021) over position IDs."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.positions.encodings.base import Encoding, EncodingConfig, Rotation, Shape
from longreach.positions.encodings.sinusoidal import geometric
from longreach.registry import register
from longreach.seeding import stream


@register("encoding", "rope")
@dataclass(frozen=True, kw_only=True)
class RopeConfig(EncodingConfig):
    """Queries and keys are turned by angles proportional to their IDs; every level has its own frequencies."""

    base: float = 10_000.0
    """Ratio of the longest wavelength to the shortest."""
    spectrum: Literal["geometric", "random"] = "geometric"
    """Frequencies from 1 down to 1/base, as published; or spread at random over (0, pi), the same for every model
    (ours): far better at telling equal IDs from unequal ones, blind to how far apart those are."""
    fraction: float = 1.0
    """Share of each head's dimensions that is turned (GPT-NeoX-20B: 0.25)."""

    def __post_init__(self) -> None:
        if self.base <= 1:
            raise ValueError(f"rope.base must be above 1, got {self.base}")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"rope.fraction must be in (0, 1], got {self.fraction}")

    def build(self, shape: Shape) -> Encoding:
        turned = int(shape.head_dim * self.fraction)
        if turned == 0 or turned % (2 * shape.levels):
            raise BadInput(
                f"rope turns {turned} of {shape.head_dim} dimensions of a head;"
                f" with {shape.levels} ID level(s) it must be a multiple of {2 * shape.levels}"
            )
        return Rope(turned // shape.levels, shape.levels, self)


class Rope(Encoding):
    def __init__(self, block: int, levels: int, config: RopeConfig) -> None:
        super().__init__()
        self.block, self.levels, self.config = block, levels, config

    def frequencies(self, device: torch.device) -> Float[Tensor, "g half"]:
        """Radians per ID, for every level."""
        if self.config.spectrum == "geometric":
            return geometric(self.block, self.config.base, device).expand(self.levels, -1)
        draws = stream(0, "rope/frequencies", torch.arange(self.levels, device=device))
        return math.pi * draws.uniform("frequency", self.block // 2)

    def rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation | None:
        angles = (ids - origin).double()[..., None] * self.frequencies(ids.device)[:, None]  # [b, g, t, block/2]
        half = angles.transpose(1, 2).flatten(2)[:, None]  # [b, 1, t, r/2]: the levels side by side
        both = torch.cat([half, half], dim=-1)
        return both.cos().float(), both.sin().float()
