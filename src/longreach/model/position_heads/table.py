"""A softmax over a vocabulary of IDs."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longreach.attention import exact_dtype
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.model.position_heads.base import Features, IdChoice, PositionHead, PositionHeadConfig, Steps
from longreach.positions.encodings import Encoding, Shape
from longreach.positions.encodings.learned import Learned


@register("position_head", "table")
@dataclass(frozen=True, kw_only=True)
class TableConfig(PositionHeadConfig):
    """IDs are classes, as (we believe) in the paper.  It can say no ID beyond the ID policy's max_id."""

    tied: bool = False
    """Use the table of the `learned` or `learned_rope` encoding for the output too."""

    def build(self, shape: Shape, encoding: Encoding) -> PositionHead:
        if shape.max_id < 1:
            raise BadInput("position head table needs max_id: the ID policy states none")
        if not encoding.absolute:
            raise BadInput(
                "position head table names IDs, but with this encoding a state knows only differences of IDs:"
                " use learned, learned_rope or sinusoidal"
            )
        if self.tied and not isinstance(encoding, Learned):
            raise BadInput("position head table: tied needs the encoding learned or learned_rope")
        return Table(shape, self, encoding)


class Table(PositionHead):
    def __init__(self, shape: Shape, config: TableConfig, encoding: Encoding) -> None:
        super().__init__()
        self.largest_id = shape.max_id
        self.features = Features(shape.width, config.see_token)
        self.sizes = [size or shape.max_id for size in shape.level_sizes]
        own = [nn.Linear(shape.width, size + 1, bias=False) for size in self.sizes]
        tied = encoding.tables if config.tied and isinstance(encoding, Learned) else None
        self.tables = nn.ModuleList([] if tied else own)
        self._tied = None if tied is None else (tied,)  # in a tuple: the encoding owns these parameters

    def forward(self, steps: Steps) -> list[IdChoice]:
        _, mixed = self.features(steps)
        choices = []
        tables = self.tables if self._tied is None else self._tied[0]
        for size, table in zip(self.sizes, tables, strict=True):
            weight: Tensor = table.weight  # type: ignore[assignment]
            logits = self.scores(mixed, weight[..., : size + 1, :])
            logits = logits.to(exact_dtype(logits))
            ids = torch.arange(size + 1, device=logits.device).expand(len(logits), 1, -1)
            choices.append(IdChoice(ids, logits))
        return choices

    def scores(self, mixed: Float[Tensor, "b a w"], weight: Float[Tensor, "n w"]) -> Float[Tensor, "b a n"]:
        """Return the scores of all IDs of a level."""
        return mixed @ weight.T
