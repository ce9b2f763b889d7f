"""Heads that see only the tokens with which they share an ID."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

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
    IDs of a bounded level are classes with an embedding each.  Needs coupled or predicted IDs: where every token has an
    ID of its own, these heads see nothing else.  Ours.
    """

    heads: int = 0
    """Heads that compare IDs, the first ones; they take the levels that grow in turn.  0: half of them, or one for each
    such level if that is more."""

    def __post_init__(self) -> None:
        if self.heads < 0:
            raise ValueError(f"equal_ids.heads must not be negative, got {self.heads}")

    def build(self, shape: Shape) -> Encoding:
        growing = shape.level_sizes.count(0)
        if not growing:
            raise BadInput("equal_ids needs a level of IDs that grows with length: use learned")
        heads = self.heads or max(shape.heads // 2, growing)
        if not growing <= heads <= shape.heads:
            raise BadInput(
                f"equal_ids.heads={heads} must be in {growing}..{shape.heads}: one for each growing level, and at most"
                " model.heads"
            )
        return EqualIds(heads, shape)


class EqualIds(BiasEncoding):
    knows_reserved = True
    copies = 2

    def __init__(self, comparing: int, shape: Shape) -> None:
        super().__init__()
        self.comparing, self.heads = comparing, shape.heads
        self.growing = [level for level, size in enumerate(shape.level_sizes) if size == 0]
        self.classes = nn.ModuleDict(
            {str(level): nn.Embedding(size + 1, shape.width) for level, size in enumerate(shape.level_sizes) if size}
        )

    @property
    def reaches_embeddings(self) -> bool:
        return len(self.classes) > 0

    def embed(self, ids: Int[Tensor, "b g t"]) -> Float[Tensor, "b t w"] | None:
        embedded: list[Tensor] = [table(ids[:, int(level)]) for level, table in self.classes.items()]
        return sum(embedded[1:], embedded[0]) if embedded else None

    def bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Float[Tensor, "b h q k"]:
        place = torch.arange(key_ids.shape[2], device=key_ids.device)
        equal = sees(self._growing(query_ids)[..., None], self._growing(key_ids)[:, :, None], place)
        biases = torch.zeros_like(equal, dtype=torch.float).masked_fill_(~equal, _HIDDEN)  # [b, levels, q, k]
        batch, _, queries, keys = biases.shape
        in_turn = biases.repeat(1, -(-self.comparing // len(self.growing)), 1, 1)[:, : self.comparing]
        free = biases.new_zeros(()).expand(batch, self.heads - self.comparing, queries, keys)
        return torch.cat([in_turn, free], dim=1)

    def pair_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> PairBias:
        queries, keys, levels = self._growing(query_ids).int(), self._growing(key_ids).int(), len(self.growing)

        def of_pair(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            level = head % levels
            equal = sees(queries[sequence, level, query], keys[sequence, level, key], key)
            return torch.where(equal | (head >= self.comparing), 0.0, _HIDDEN)

        return of_pair

    def _growing(self, ids: Int[Tensor, "b g t"]) -> Int[Tensor, "b n t"]:
        return torch.stack([ids[:, level] for level in self.growing], dim=1)


def sees(query: Int[Tensor, "*q"], key: Int[Tensor, "*k"], place: Int[Tensor, "*p"]) -> Bool[Tensor, "*n"]:
    """Return whether IDs are equal; a reserved one sees the key at place 0."""
    return torch.where(query == 0, place == 0, query == key)
