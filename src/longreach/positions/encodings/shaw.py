"""A learned vector per distance, which queries look at (Shaw et al., NAACL 2018)."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.config import Size
from longreach.config.registry import register
from longreach.positions.encodings.base import ContentBias, Encoding, EncodingConfig, Shape


@register("encoding", "shaw")
@dataclass(frozen=True, kw_only=True)
class ShawConfig(EncodingConfig):
    """Each distance of IDs, cut at `max_distance` either way, has a vector; its product with the query joins the score.

    As published, heads share the vectors; here layers do too, and there are none for the values, which the authors
    found to add nothing.  With coupled IDs a key may be ahead: those distances have vectors of their own.
    """

    paper = "Shaw et al., NAACL 2018"

    max_distance: Size = 64
    """Distances beyond it share a vector."""

    def __post_init__(self) -> None:
        if self.max_distance < 1:
            raise ValueError(f"shaw.max_distance must be at least 1, got {self.max_distance}")

    def build(self, shape: Shape) -> Encoding:
        return Shaw(shape, self.max_distance)


class Shaw(Encoding):
    stacks = False  # it multiplies by its tables itself

    def __init__(self, shape: Shape, max_distance: int) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.tables = nn.ModuleList([nn.Embedding(2 * max_distance + 1, shape.head_dim) for _ in range(shape.levels)])

    def score_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> ContentBias:
        def of(part: slice, q: Tensor, k: Tensor, seen: Tensor) -> Float[Tensor, "b h q k"]:
            total = torch.zeros_like(q[..., :1] @ k[..., :1].transpose(2, 3))
            for level, table in enumerate(self.tables):
                distance = query_ids[:, level, part, None] - key_ids[:, level, None]
                entry = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
                by_entry = q @ cast(Tensor, table.weight).to(q.dtype).T / math.sqrt(q.shape[3])  # [b, h, q, entries]
                total = total + by_entry.gather(3, entry[:, None].expand(-1, q.shape[1], -1, -1))
            return total

        return ContentBias(of, copies=4)
