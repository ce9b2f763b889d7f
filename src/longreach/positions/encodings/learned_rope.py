"""A learned vector per ID, and rotary embeddings beside it."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from longreach.config import PositionId
from longreach.config.registry import register
from longreach.positions.encodings.base import Encoding, Rotation, Shape
from longreach.positions.encodings.learned import Learned, LearnedConfig
from longreach.positions.encodings.rope import RopeConfig


@register("encoding", "learned_rope")
@dataclass(frozen=True, kw_only=True)
class LearnedRopeConfig(RopeConfig):
    """Both at once: attention compares IDs by rotation, and states know which ID they have."""

    max_id: PositionId = 0
    """The last ID of the table; 0 takes the ID policy's max_id."""

    def build(self, shape: Shape) -> Encoding:
        learned = LearnedConfig(max_id=self.max_id).build(shape)
        assert isinstance(learned, Learned)
        return LearnedRope(learned, super().build(shape))


class LearnedRope(Learned):
    """The table is the encoding itself, so that a head can be tied to it."""

    def __init__(self, learned: Learned, rope: Encoding) -> None:
        Encoding.__init__(self)
        self.largest_id, self.tables, self.rope = learned.largest_id, learned.tables, rope

    def rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation | None:
        return self.rope.rotation(ids, origin)
