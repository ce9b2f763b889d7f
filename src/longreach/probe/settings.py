"""What a probe is asked to do."""

from dataclasses import dataclass
from typing import Literal

from longreach.config import Seed, Settings

Method = Literal["masks", "leave_one_out", "gradient", "elimination"]
"""How influence is measured: a regression on random masks, one token hidden at a time, gradient times input, or
hiding the least needed tokens again and again."""

MaskKind = Literal["fixed", "range"]
"""`fixed`: every token is kept with the same probability.  `range`: each mask draws its own probability first."""


@dataclass(frozen=True, kw_only=True)
class ProbeConfig(Settings):
    """How influence is measured, and from when on it counts."""

    method: Method = "masks"
    """What gives the weights."""
    masks: int = 256
    """Random masks for the regression."""
    held_out: int = 64
    """Further masks of the same kind: they choose the penalty (one half) and tell the faithfulness (the other)."""
    keep: float = 0.8
    """The probability with which a mask keeps a token; for masks of the kind `range`, the smallest one."""
    mask_kind: MaskKind = "fixed"
    """How masks are drawn."""
    window: int = 1
    """Tokens that every token always sees: itself and those just before it."""
    tau: float = 0.1
    """Nats: a token whose weight is larger, whatever its sign, is influential."""
    eps: float = 0.1
    """Nats: a loss this close to that in full context is as good."""
    largest_k: int = 64
    """The most tokens whose retention is tried."""
    seed: Seed = 0
    """Of the masks."""

    def __post_init__(self) -> None:
        for name in ("masks", "window", "largest_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"probe.{name} must be at least 1, got {getattr(self, name)}")
        if self.held_out < 4:
            raise ValueError(f"probe.held_out must be at least 4, got {self.held_out}")
        if not 0 < self.keep < 1:
            raise ValueError(f"probe.keep must be between 0 and 1, got {self.keep}")
        for name in ("tau", "eps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"probe.{name} must be positive, got {getattr(self, name)}")
