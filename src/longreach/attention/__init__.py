"""How scores become weights: one attention per file."""

from longreach.attention.base import Attention, AttentionConfig
from longreach.attention.explicit import ExplicitAttention
from longreach.attention.scaled_softmax import ScaledSoftmaxConfig
from longreach.attention.softmax import Softmax
from longreach.attention.top_k import TopKConfig

__all__ = ["Attention", "AttentionConfig", "ExplicitAttention", "ScaledSoftmaxConfig", "Softmax", "TopKConfig"]
