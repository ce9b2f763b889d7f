"""How scores become weights: one attention per file."""

from longreach.attention.asentmax import AsEntmaxConfig
from longreach.attention.base import Attention, AttentionConfig, ScaledSoftmaxConfig, SoftmaxConfig, exact_dtype
from longreach.attention.entmax import EntmaxConfig
from longreach.attention.sliding_window import SlidingWindowConfig
from longreach.attention.stick_breaking import StickBreakingConfig
from longreach.attention.top_k import TopKConfig

__all__ = [
    "AsEntmaxConfig",
    "Attention",
    "AttentionConfig",
    "EntmaxConfig",
    "ScaledSoftmaxConfig",
    "SlidingWindowConfig",
    "SoftmaxConfig",
    "StickBreakingConfig",
    "TopKConfig",
    "exact_dtype",
]
