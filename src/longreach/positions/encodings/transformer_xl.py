"""Sinusoids of distances, which queries and two learned vectors look at (Dai et al., ACL 2019)."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings.base import ContentBias, Encoding, EncodingConfig, Shape, geometric


@register("encoding", "transformer_xl")
@dataclass(frozen=True, kw_only=True)
class TransformerXlConfig(EncodingConfig):
    """Scores gain q.W r + u.k + v.W r, with r the sinusoids of the distance of IDs, and u, v learned per head.

    W, one matrix per head and level, is shared by all layers here; the authors have one per layer.  Distances may be
    negative.
    """

    paper = "Dai et al., ACL 2019"

    base: float = 10_000.0
    """Ratio of the longest wavelength to the shortest."""

    def __post_init__(self) -> None:
        if self.base <= 1:
            raise ValueError(f"transformer_xl.base must be above 1, got {self.base}")

    def build(self, shape: Shape) -> Encoding:
        if shape.width % 2:
            raise BadInput(f"transformer_xl needs an even width, got {shape.width}")
        return TransformerXl(shape, self.base)


class TransformerXl(Encoding):
    stacks = False  # it multiplies by its tables itself

    def __init__(self, shape: Shape, base: float) -> None:
        super().__init__()
        self.heads, self.width, self.base = shape.heads, shape.width, base
        self.projections = nn.ModuleList([nn.Linear(shape.width, shape.width, bias=False) for _ in range(shape.levels)])
        self.content = nn.Embedding(shape.heads, shape.head_dim)
        self.place = nn.Embedding(shape.heads, shape.head_dim)

    def score_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> ContentBias:
        origin = key_ids[:, :, :1]

        def of(part: slice, q: Tensor, k: Tensor, seen: Tensor) -> Float[Tensor, "b h q k"]:
            total = self.content.weight.to(q.dtype)[:, None] @ k.transpose(2, 3)  # [b, h, 1, k]
            looking = q + self.place.weight.to(q.dtype)[:, None]
            for level, projection in enumerate(self.projections):
                matrix = cast(Tensor, projection.weight).to(q.dtype).view(self.heads, -1, self.width)
                sines, cosines = (looking @ matrix).chunk(2, dim=-1)  # how much each query wants of sin and cos
                # sin and cos of a difference are products of those of its ends: no distance is ever written out
                at_query = self._angles(query_ids[:, level, part] - origin[:, level])
                at_key = self._angles(key_ids[:, level] - origin[:, level])
                sin, cos = at_query.sin().to(q.dtype)[:, None], at_query.cos().to(q.dtype)[:, None]
                of_cos = sines * sin + cosines * cos
                of_sin = cosines * sin - sines * cos
                keys = torch.cat([at_key.cos(), at_key.sin()], dim=-1).to(q.dtype)
                total = total + torch.cat([of_cos, of_sin], dim=-1) @ keys[:, None].transpose(2, 3)
            return total / math.sqrt(q.shape[3])

        return ContentBias(of, copies=2)

    def _angles(self, ids: Int[Tensor, "b t"]) -> Float[Tensor, "b t r"]:
        return ids[..., None].double() * geometric(self.width, self.base, ids.device)
