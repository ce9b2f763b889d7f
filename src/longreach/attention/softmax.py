"""Plain softmax."""

from dataclasses import dataclass

from longreach.attention.base import Attention, AttentionConfig
from longreach.config.registry import register
from longreach.positions.encodings import Shape


@register("attention", "softmax")
@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(AttentionConfig):
    """Scores as they are."""

    paper = "Vaswani et al., NeurIPS 2017"

    def build(self, shape: Shape) -> Attention:
        return Attention()
