"""Heads that see only the tokens with which they share an ID."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings.base import BiasEncoding, Encoding, EncodingConfig, Shape
from longreach.positions.encodings.pairs import PairBias

_HIDDEN = -1e30
"""The bias of a key that a head does not see; finite, so that no row of scores is without a number."""


@register("encoding", "equal_ids")
@dataclass(frozen=True, kw_only=True)
class EqualIdsConfig(EncodingConfig):
    """Some heads see only tokens with an equal ID, each at one level; the other heads see all tokens and no ID.

    Only equality of IDs matters, so that no ID and no distance is new at a greater length.  Rotations must tell
    thousands of IDs apart by few angles; a comparison need not.  A token with the reserved ID 0 sees the first token.
    Needs coupled or predicted IDs: where every token has an ID of its own, these heads see nothing else.  Ours.
    """

    heads: int = 0
    """Heads that compare IDs, the first ones; they take the levels in turn.  0: half of them, or one for each level if
    that is more."""

    def __post_init__(self) -> None:
        if self.heads < 0:
            raise ValueError(f"equal_ids.heads must not be negative, got {self.heads}")

    def build(self, shape: Shape) -> Encoding:
        heads = self.heads or max(shape.heads // 2, shape.levels)
        if not shape.levels <= heads <= shape.heads:
            raise BadInput(
                f"equal_ids.heads={heads} must be in {shape.levels}..{shape.heads}: one for each level of IDs, and at"
                " most model.heads"
            )
        return EqualIds(heads, shape)


class EqualIds(BiasEncoding):
    absolute = True  # a state can know whether its ID is the reserved one
    copies = 2

    def __init__(self, comparing: int, shape: Shape) -> None:
        super().__init__()
        self.comparing, self.heads, self.levels = comparing, shape.heads, shape.levels

    def bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Float[Tensor, "b h q k"]:
        place = torch.arange(key_ids.shape[2], device=key_ids.device)
        equal = sees(query_ids[..., None], key_ids[:, :, None], place)
        biases = torch.zeros_like(equal, dtype=torch.float).masked_fill_(~equal, _HIDDEN)  # [b, levels, q, k]
        batch, _, queries, keys = biases.shape
        in_turn = biases.repeat(1, -(-self.comparing // self.levels), 1, 1)[:, : self.comparing]
        free = biases.new_zeros(()).expand(batch, self.heads - self.comparing, queries, keys)
        return torch.cat([in_turn, free], dim=1)

    def pair_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> PairBias:
        queries, keys = query_ids.int(), key_ids.int()

        def of_pair(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            level = head % self.levels
            equal = sees(queries[sequence, level, query], keys[sequence, level, key], key)
            return torch.where(equal | (head >= self.comparing), 0.0, _HIDDEN)

        return of_pair


def sees(query: Int[Tensor, "*q"], key: Int[Tensor, "*k"], place: Int[Tensor, "*p"]) -> Bool[Tensor, "*n"]:
    """Return whether IDs are equal; a reserved one sees the key at place 0."""
    return torch.where(query == 0, place == 0, query == key)
