"""Rotary position embeddings (Su et al., 2021) over position IDs."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.positions.encodings.base import Encoding, EncodingConfig, Rotation, Shape
from longreach.positions.encodings.sinusoidal import level_angles
from longreach.registry import register


@register("encoding", "rope")
@dataclass(frozen=True, kw_only=True)
class RopeConfig(EncodingConfig):
    """Queries and keys are turned by angles proportional to their IDs; every level has its own frequencies."""

    base: float = 10_000.0
    """Ratio of the longest wavelength to the shortest."""
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
        return Rope(turned // shape.levels, self.base)


class Rope(Encoding):
    def __init__(self, block: int, base: float) -> None:
        super().__init__()
        self.block, self.base = block, base

    def rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation | None:
        angles = level_angles(ids - origin, self.block, self.base)  # [b, g, t, block/2]
        half = angles.transpose(1, 2).flatten(2)[:, None]  # [b, 1, t, r/2]: the levels side by side
        both = torch.cat([half, half], dim=-1)
        return both.cos().float(), both.sin().float()
