"""Plain softmax."""

from dataclasses import dataclass

from longreach.attention.base import Attention, AttentionConfig
from longreach.positions.encodings import Shape
from longreach.registry import register


@register("attention", "softmax")
@dataclass(frozen=True, kw_only=True)
class Softmax(AttentionConfig):
    """Scores as they are."""

    paper = "Vaswani et al., NeurIPS 2017"

    def build(self, shape: Shape) -> Attention:
        return Attention()
