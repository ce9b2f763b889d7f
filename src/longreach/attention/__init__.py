"""How scores become weights: one attention per file."""

from longreach.attention.base import Attention, AttentionConfig
from longreach.attention.scaled_softmax import ScaledSoftmaxConfig
from longreach.attention.softmax import Softmax

__all__ = ["Attention", "AttentionConfig", "ScaledSoftmaxConfig", "Softmax"]
