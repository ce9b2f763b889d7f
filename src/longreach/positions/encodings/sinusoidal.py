"""Fixed sines and cosines of the ID, added to the token embeddings (Vaswani et al., 2017)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings.base import Encoding, EncodingConfig, Shape, geometric


@register("encoding", "sinusoidal")
@dataclass(frozen=True, kw_only=True)
class SinusoidalConfig(EncodingConfig):
    """Every level has its own block of the width."""

    paper = "Vaswani et al., NeurIPS 2017"

    base: float = 10_000.0
    """Ratio of the longest wavelength to the shortest."""
    scale: float = 0.02
    """Factor on the sines and cosines; token embeddings start at a standard deviation of 0.02."""

    def __post_init__(self) -> None:
        if self.base <= 1:
            raise ValueError(f"sinusoidal.base must be above 1, got {self.base}")

    def build(self, shape: Shape) -> Encoding:
        if shape.width % (2 * shape.levels):
            raise BadInput(
                f"sinusoidal: width {shape.width} does not split into sines and cosines of {shape.levels} levels"
            )
        return Sinusoidal(shape, self)


class Sinusoidal(Encoding):
    absolute = True

    def __init__(self, shape: Shape, config: SinusoidalConfig) -> None:
        super().__init__()
        self.block, self.config = shape.width // shape.levels, config

    def embed(self, ids: Int[Tensor, "b g t"]) -> Float[Tensor, "b t w"] | None:
        # in fp64: fp32 angles at ID 1,000,000 are already off by some hundredths
        angles = ids.double()[..., None] * geometric(self.block, self.config.base, ids.device)  # [b, g, t, block/2]
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return (self.config.scale * waves.transpose(1, 2).flatten(2)).float()
