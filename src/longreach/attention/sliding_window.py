"""Softmax over the last few tokens and, as sinks, the first ones."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.attention.base import Attention, AttentionConfig
from longreach.config.registry import register
from longreach.positions.encodings import Shape


@register("attention", "sliding_window")
@dataclass(frozen=True, kw_only=True)
class SlidingWindowConfig(AttentionConfig):
    """A query sees the last `window` tokens, its own included, and the first `sinks` of the sequence.

    Windows as in Beltagy et al. (2020); on sinks softmax leaves what it must put somewhere (Xiao et al., ICLR 2024).
    Tokens are counted, not IDs: what is cut off is out of sight whatever its ID.
    """

    paper = "Beltagy et al., 2020; Xiao et al., ICLR 2024"

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
    hides = True

    def __init__(self, window: int, sinks: int) -> None:
        super().__init__()
        self.window, self.sinks = window, sinks

    def seen(
        self, keys: int, visible: Int[Tensor, "#b q"], mask: Bool[Tensor, "b 1 q k"] | None, part: slice
    ) -> Bool[Tensor, "#b 1 some k"]:
        column, last = torch.arange(keys, device=visible.device), visible[:, None, part, None]
        near = (column >= last - self.window) | (column < self.sinks)
        return near & super().seen(keys, visible, mask, part)
