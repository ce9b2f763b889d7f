"""Positions counted by content (Golovneva et al., 2024)."""

import math
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.config import Size
from longreach.config.registry import register
from longreach.positions.encodings.base import ContentBias, Encoding, EncodingConfig, Shape


@register("encoding", "cope")
@dataclass(frozen=True, kw_only=True)
class CopeConfig(EncodingConfig):
    """A key's position is the sum of the gates, sigmoids of scores, of the keys from it up to the query.

    Each position up to `positions` has a learned vector, those between two share; its product with the query joins the
    score.  It counts tokens that matter and has no use for IDs: every ID policy gives the same.
    As in the authors' code, scores q k / sqrt(d) make the gates, and the product of query and vector is not divided by
    sqrt(d).  The authors' table starts at zero; this one starts like every other table of embeddings.
    """

    paper = "Golovneva et al., 2024"

    positions: Size = 64
    """The largest count; what is further away shares it."""

    def __post_init__(self) -> None:
        if self.positions < 1:
            raise ValueError(f"cope.positions must be at least 1, got {self.positions}")

    def build(self, shape: Shape) -> Encoding:
        return Cope(shape, self.positions)


class Cope(Encoding):
    stacks = False  # it multiplies by its tables itself

    def __init__(self, shape: Shape, positions: int) -> None:
        super().__init__()
        self.positions = positions
        self.table = nn.Embedding(positions + 1, shape.head_dim)

    @property
    def reaches_scores(self) -> bool:
        return False  # what reaches them is no ID

    def score_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> ContentBias:
        def of(part: slice, q: Tensor, k: Tensor, seen: Tensor) -> Float[Tensor, "b h q k"]:
            gates = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).sigmoid().masked_fill(~seen, 0)
            position = (gates.sum(-1, keepdim=True) - gates.cumsum(-1) + gates).clamp(max=self.positions)
            below = position.detach().floor().long().clamp(0, self.positions - 1)
            by_position = q @ self.table.weight.to(q.dtype).T
            share = position - below
            return by_position.gather(3, below) * (1 - share) + by_position.gather(3, below + 1) * share

        return ContentBias(of, copies=8)
