"""Rotations that treat far keys otherwise than near ones, for models trained short: Self-Extend and ReRoPE."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings.base import ContentBias, Encoding, Shape
from longreach.positions.encodings.rope import Rope, RopeConfig, turn_further


@dataclass(frozen=True, kw_only=True)
class FarRopeConfig(RopeConfig):
    """Base of both: keys less than `window` IDs behind the query are turned as by `rope`."""

    window: int = 64
    """Distance from which keys count as far; at most what training has seen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")


@register("encoding", "self_extend")
@dataclass(frozen=True, kw_only=True)
class SelfExtendConfig(FarRopeConfig):
    """Far keys are turned by grouped IDs, floor(ID / group), shifted so that distances join at the window.

    Needs no training: give it to a model trained with `rope` when it is tested.  Groups count from the first token's
    ID, so that shifting all IDs changes nothing.  The authors' code groups IDs from 0; both agree where the first ID
    is 0.  The shift is window - window // group, as in the authors' decoding and older code; their newer code for eager
    attention does not round window / group, which differs where `group` does not divide `window`.
    """

    paper = "Jin et al., ICML 2024"

    group: int = 8
    """IDs that share one when they are far."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group < 1:
            raise ValueError(f"self_extend.group must be at least 1, got {self.group}")

    def build(self, shape: Shape) -> Encoding:
        return SelfExtend(self.pairs_of(shape), self)


@register("encoding", "rerope")
@dataclass(frozen=True, kw_only=True)
class ReRopeConfig(FarRopeConfig):
    """Far keys are turned as if they stood at the window's edge: no distance is larger (Su, 2023).

    With `leak` distances beyond the window go on growing, that many times slower.  Needs no training, as `self_extend`.
    """

    paper = "Su, 2023"

    leak: float = 0.0
    """How many times slower distances grow beyond the window; 0 is not at all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.leak and self.leak < 1:
            raise ValueError(f"rerope.leak must be 0 or at least 1, got {self.leak}")

    def build(self, shape: Shape) -> Encoding:
        return ReRope(self.pairs_of(shape), self)


class FarRope(Rope):
    """Rotations as `rope` has them, and a bias that corrects the scores of far keys."""

    config: FarRopeConfig

    def far_places(
        self, query: Float[Tensor, "b q"], key: Float[Tensor, "b k"]
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b k"]]:
        """Where far queries and keys stand, instead of at their IDs."""
        raise BadInput(f"{type(self).__name__} does not say where far keys stand")

    def score_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> ContentBias:
        origin = key_ids[:, :, :1]

        def of(part: slice, q: Tensor, k: Tensor, seen: Tensor) -> Float[Tensor, "b h q k"]:
            total = torch.zeros_like(q[..., :1] @ k[..., :1].transpose(2, 3))
            for level in range(len(self.pairs)):
                query, key = query_ids[:, level, part] - origin[:, level], key_ids[:, level] - origin[:, level]
                far_query, far_key = self.far_places(query.double(), key.double())
                near_q, near_k = self.turning(q, level), self.turning(k, level)
                # queries and keys are turned already: what is missing is the way from their own place to the far one
                frequencies = self.frequencies(level, q.device)
                far_q = turn_further(near_q, (far_query - query)[..., None] * frequencies)
                far_k = turn_further(near_k, (far_key - key)[..., None] * frequencies)
                change = far_q @ far_k.transpose(2, 3) - near_q @ near_k.transpose(2, 3)
                far = (query[:, None, :, None] - key[:, None, None, :]) >= self.config.window
                total = total + torch.where(far, change, 0)
            return total / math.sqrt(q.shape[3])

        return ContentBias(of, copies=4)


class SelfExtend(FarRope):
    config: SelfExtendConfig

    def far_places(
        self, query: Float[Tensor, "b q"], key: Float[Tensor, "b k"]
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b k"]]:
        group, window = self.config.group, self.config.window
        return (query / group).floor() + window - window // group, (key / group).floor()


class ReRope(FarRope):
    config: ReRopeConfig

    def far_places(
        self, query: Float[Tensor, "b q"], key: Float[Tensor, "b k"]
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b k"]]:
        window, leak = self.config.window, self.config.leak
        if not leak:
            return torch.full_like(query, window), torch.zeros_like(key)
        return query / leak + window - window / leak, key / leak
