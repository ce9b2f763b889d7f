"""Half of the heads with linear biases, half without any position (Vasylenko et al., ICLR 2026)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings.alibi import Alibi
from longreach.positions.encodings.base import Encoding, EncodingConfig, Shape


@register("encoding", "nape")
@dataclass(frozen=True, kw_only=True)
class NapeConfig(EncodingConfig):
    """The first half of the heads falls by |i - j| / h for head h = 1, 2, ...; the others know the causal mask only.

    Meant to be used with an attention whose scores grow in the heads without biases alone: `scaled_heads: 0.5`.
    """

    paper = "Vasylenko et al., ICLR 2026"

    def build(self, shape: Shape) -> Encoding:
        if shape.heads % 2:
            raise BadInput(f"nape splits heads into halves, and there are {shape.heads}")
        return Nape(shape.heads)


class Nape(Alibi):
    def slopes(self, device: torch.device) -> Float[Tensor, "h"]:
        """One per head."""
        number = torch.arange(1, self.heads + 1, device=device)
        return torch.where(number <= self.heads // 2, 1 / number, 0.0)
