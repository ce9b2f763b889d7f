"""No position encoding: the causal mask alone."""

from dataclasses import dataclass

from longreach.positions.encodings.base import Encoding, EncodingConfig, Shape
from longreach.registry import register


@register("encoding", "none")
@dataclass(frozen=True, kw_only=True)
class NoEncoding(EncodingConfig):
    """IDs are not used (NoPE)."""

    paper = "Kazemnejad et al., NeurIPS 2023"

    def build(self, shape: Shape) -> Encoding:
        return Encoding()
