"""Rotations that fade with distance (Sun et al., ACL 2023)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.positions.encodings.base import Encoding, Rotation, Shape
from longreach.positions.encodings.rope import Rope, RopeConfig


@register("encoding", "xpos")
@dataclass(frozen=True, kw_only=True)
class XposConfig(RopeConfig):
    """As `rope`, and each pair of dimensions is also scaled by zeta^(distance / scale), the slow ones least.

    zeta goes from .29 for the fastest pair to 1.  A key whose ID is ahead of the query's, as coupled IDs have them, is
    scaled up.  IDs further than about 70 scales from the first of a sequence leave the range of fp32.
    """

    paper = "Sun et al., ACL 2023"

    scale: float = 512.0
    """IDs over which a pair fades by its zeta."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spectrum != "geometric":
            raise ValueError("xpos fades fast pairs first; a random spectrum has no order to go by")
        if self.scale <= 0:
            raise ValueError(f"xpos.scale must be positive, got {self.scale}")

    def build(self, shape: Shape) -> Encoding:
        return Xpos(self.pairs_of(shape), self)


class Xpos(Rope):
    config: XposConfig

    def rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation:
        cos, sin = super().rotation(ids, origin)
        scale = self._scale(ids - origin)
        return cos * scale, sin * scale

    def key_rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation:
        cos, sin = super().rotation(ids, origin)
        scale = self._scale(origin - ids)
        return cos * scale, sin * scale

    def _scale(self, away: Int[Tensor, "b g t"]) -> Float[Tensor, "b 1 t p"]:
        powers = []
        for level, pairs in enumerate(self.pairs):
            zeta = (torch.arange(pairs, device=away.device).double() / pairs + 0.4) / 1.4
            powers.append(zeta ** (away[:, level, :, None].double() / self.config.scale))
        return torch.cat(powers, dim=-1)[:, None].float()
