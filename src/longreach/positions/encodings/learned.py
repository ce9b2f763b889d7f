"""A learned vector per ID."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.config import PositionId
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings.base import Encoding, EncodingConfig, Shape


@register("encoding", "learned")
@dataclass(frozen=True, kw_only=True)
class LearnedConfig(EncodingConfig):
    """One table per level, summed onto the token embeddings once."""

    paper = "Gehring et al., ICML 2017"

    max_id: PositionId = 0
    """The last ID of the table; 0 takes the ID policy's max_id."""

    def __post_init__(self) -> None:
        if self.max_id < 0:
            raise ValueError(f"learned.max_id must not be negative, got {self.max_id}")

    def build(self, shape: Shape) -> Encoding:
        last = self.max_id or shape.max_id
        if last < 1:
            raise BadInput("encoding learned needs max_id: the ID policy states none")
        return Learned(shape, last)


class Learned(Encoding):
    absolute = True

    def __init__(self, shape: Shape, last: int) -> None:
        super().__init__()
        self.largest_id = last
        self.tables = nn.ModuleList([nn.Embedding(last + 1, shape.width) for _ in range(shape.levels)])

    def embed(self, ids: Int[Tensor, "b g t"]) -> Float[Tensor, "b t w"] | None:
        return torch.stack([table(ids[:, level]) for level, table in enumerate(self.tables)]).sum(0)
