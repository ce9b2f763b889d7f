"""Softmax whose scores grow with the logarithm of the number of keys."""

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention.base import Attention, AttentionConfig, exact_dtype
from longreach.config import Bounds
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings import Shape


@register("attention", "scaled_softmax")
@dataclass(frozen=True, kw_only=True)
class ScaledSoftmaxConfig(AttentionConfig):
    """Scores times (1 + s log n), n the number of keys a query sees, s learned per head.

    Without it a head that picks one key among n is diluted as n grows.  Nakanishi (2025, scalable softmax)
    multiplies by s log n (`offset: 0`); the 1 keeps short sequences as they were, and is ours.
    """

    paper = "Nakanishi, 2025"

    start: Annotated[float, Bounds()] = 0.2
    """Initial s."""
    offset: Annotated[float, Bounds()] = 1.0
    """What s log n is added to."""
    scaled_heads: float = 1.0
    """Share of the heads, the last ones, whose scores grow; the others' stay as they are."""

    def __post_init__(self) -> None:
        if not 0 < self.scaled_heads <= 1:
            raise ValueError(f"scaled_heads must be in (0, 1], got {self.scaled_heads}")

    def build(self, shape: Shape) -> Attention:
        return ScaledSoftmax(shape.heads, self)


class GrowingScores(Attention):
    """Base of attentions whose scores grow with the number of keys."""

    def __init__(self, heads: int, config: ScaledSoftmaxConfig) -> None:
        super().__init__()
        self.config = config
        self.still_heads = heads - round(heads * config.scaled_heads)
        if self.still_heads == heads:
            raise BadInput(f"scaled_heads={config.scaled_heads} leaves none of {heads} heads whose scores grow")

    def grow(self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"]) -> Float[Tensor, "#b h q"]:
        """The growth of every head, were none of them still."""
        raise BadInput(f"{type(self).__name__} does not say how scores grow")

    def growth(self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"] | None) -> Float[Tensor, "#b h q"]:
        assert states is not None
        growth = self.grow(visible, states)
        if self.still_heads:
            still = torch.arange(growth.shape[1], device=growth.device) < self.still_heads
            growth = growth.masked_fill(still[:, None], 1.0)
        return growth


class ScaledSoftmax(GrowingScores):
    """Scores of each head grow with a slope of its own."""

    def __init__(self, heads: int, config: ScaledSoftmaxConfig) -> None:
        super().__init__(heads, config)
        self.slope = nn.Parameter(torch.full((heads,), config.start))

    def initialise(self) -> None:
        nn.init.constant_(self.slope, self.config.start)

    def grow(self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"]) -> Float[Tensor, "#b h q"]:
        slope = self.slopes(states)
        return self.config.offset + slope[..., None] * visible.to(exact_dtype(slope)).log()[:, None, :]

    def slopes(self, states: Float[Tensor, "b q w"]) -> Float[Tensor, "#b h"]:
        """Return the slope of each head, for each row."""
        return self.slope[None]
