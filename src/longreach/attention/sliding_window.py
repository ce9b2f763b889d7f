"""Softmax over the last few tokens and, as sinks, the first ones."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention.base import Attention, AttentionConfig
from longreach.positions.encodings import Bias, Shape
from longreach.registry import register


@register("attention", "sliding_window")
@dataclass(frozen=True, kw_only=True)
class SlidingWindowConfig(AttentionConfig):
    """A query sees the last `window` tokens, its own included, and the first `sinks` of the sequence.

    Windows as in Beltagy et al. (2020); on sinks softmax leaves what it must put somewhere (Xiao et al., ICLR 2024).
    Tokens are counted, not IDs: what is cut off is out of sight whatever its ID.
    """

    window: int = 64
    """Last tokens seen."""
    sinks: int = 0
    """First tokens seen always."""

    def __post_init__(self) -> None:
        if self.window < 1 or self.sinks < 0:
            raise ValueError(
                f"sliding_window: window must be at least 1 and sinks not negative, got {self.window} and {self.sinks}"
            )

    def build(self, shape: Shape) -> Attention:
        return SlidingWindow(self.window, self.sinks)


class SlidingWindow(Attention):
    def __init__(self, window: int, sinks: int) -> None:
        super().__init__()
        self.window, self.sinks = window, sinks

    def forward(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        return super().forward(q, k, v, visible, self.near(visible, k.shape[2], len(q)), bias)

    def near(self, visible: Int[Tensor, "#b q"], keys: int, batch: int) -> Bool[Tensor, "b 1 q k"]:
        """Which keys are seen; the causal mask and that of a cache are a part of it."""
        column, last = torch.arange(keys, device=visible.device), visible[:, None, :, None]
        seen = (column < last) & ((column >= last - self.window) | (column < self.sinks))
        return seen.expand(batch, -1, -1, -1)
