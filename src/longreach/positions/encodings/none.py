"""No position encoding: the causal mask alone."""

from dataclasses import dataclass

from longreach.config.registry import register
from longreach.positions.encodings.base import Encoding, EncodingConfig, Shape


@register("encoding", "none")
@dataclass(frozen=True, kw_only=True)
class NoEncodingConfig(EncodingConfig):
    """IDs are not used (NoPE)."""

    paper = "Kazemnejad et al., NeurIPS 2023"

    def build(self, shape: Shape) -> Encoding:
        return Encoding()
