"""Softmax attention, plain or with scores that grow with the number of keys: the base of all others."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, ParamSpec, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from longreach.config import Bounds, Settings
from longreach.config.registry import kind, name_of, register
from longreach.errors import BadInput
from longreach.positions.encodings import Bias, Shape

P = ParamSpec("P")


def recomputed(compute: Callable[P, Tensor], *args: P.args, **kwargs: P.kwargs) -> Tensor:
    """Return `compute(...)`; the backward pass computes it again instead of keeping what it needs.

    Nothing here draws at random, so that the state of no generator is kept: a recorded step could not keep one.
    """
    result = checkpoint(compute, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)  # type: ignore[arg-type]
    return cast(Tensor, result)


def exact_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype that scores and losses are computed in: float64 stays float64, all others become float32."""
    return torch.promote_types(tensor.dtype, torch.float32)


_SCORES = 1 << 28
"""Scores that are written out at once."""


class Attention(nn.Module):
    """Softmax attention through torch's fused kernels.  A subclass may let scores grow, and one that weighs or sees
    keys in a way of its own says so, and is written out."""

    room: int | None = None
    """Numbers that a part of the queries may hold while its bias is computed; None is as many as scores."""

    fused: bool = True
    """Whether torch's kernels compute it: weights are a softmax over all keys that are seen."""
    hides: bool = False
    """Whether `seen` hides more than causality does."""

    def growth(
        self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"] | None
    ) -> Float[Tensor, "#b h q"] | None:
        """By what the scores of each head and query are multiplied, given how many keys it sees and the state that it
        was made from."""
        return None

    def rescale(
        self, q: Float[Tensor, "b h q d"], visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"] | None
    ) -> Float[Tensor, "b h q d"]:
        """Queries whose scores grow."""
        growth = self.growth(visible, states)
        return q if growth is None else (q * growth[..., None]).to(q.dtype)

    def weigh(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        """By what values are mixed; a score of minus infinity is a key that must not be seen."""
        return scores.softmax(-1)

    def forward(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        """For queries that are rescaled already.  Without a mask, queries and keys are the same tokens and attention is
        causal."""
        # a step of generation is two products of a vector and a matrix, which fused kernels do as for a block of them
        one_query = q.shape[2] == 1 and mask is not None
        if one_query or not self.fused:
            return self.write_out(q, k, v, visible, mask, bias)
        if bias is None and not self.hides:
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)

        def mix(part: slice) -> Tensor:
            added = seen = self.seen(k.shape[2], visible, mask, part)
            if bias is not None:
                added = _exactly(bias, part, q, k, seen).to(q.dtype).masked_fill(~seen, -torch.inf)
            return scaled_dot_product_attention(q[:, :, part], k, v, attn_mask=added)

        return self._in_parts(mix, q, k, bias)

    def write_out(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        """The formula, a part of the queries at a time."""

        def mix(part: slice) -> Tensor:
            return self.weights(q, k, visible, mask, bias, part).to(v.dtype) @ v

        return self._in_parts(mix, q, k, bias)

    def weights(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
        part: slice,
    ) -> Float[Tensor, "b h some k"]:
        """By what values are mixed, for a part of the queries."""
        exact = exact_dtype(q)
        seen = self.seen(k.shape[2], visible, mask, part)
        with torch.autocast(q.device.type, enabled=False):  # which key is ahead must not hang on the last bits of bf16
            scores = q[:, :, part].to(exact) @ k.to(exact).transpose(2, 3) * q.shape[3] ** -0.5
            if bias is not None:
                scores = scores + _exactly(bias, part, q, k, seen)
            return self.weigh(scores.masked_fill(~seen, -torch.inf))

    def _in_parts(
        self,
        mix: Callable[[slice], Tensor],
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        """Mix values for all queries, in parts whose scores, and what computing a bias takes, fit into memory.

        Each of several parts is recomputed in the backward pass, so that memory grows with the length and not with its
        square.
        """
        copies = 1 if bias is None else bias.copies
        of_a_query = q.shape[0] * q.shape[1] * k.shape[2]
        if q.shape[2] * of_a_query * copies <= _SCORES:
            return mix(slice(None))
        most = min(_SCORES, max(_SCORES, self.room or 0) // copies)
        size = max(1, most // of_a_query)
        parts = [slice(start, min(start + size, q.shape[2])) for start in range(0, q.shape[2], size)]
        return torch.cat([recomputed(mix, part) for part in parts], dim=2)

    def seen(
        self, keys: int, visible: Int[Tensor, "#b q"], mask: Bool[Tensor, "b 1 q k"] | None, part: slice
    ) -> Bool[Tensor, "#b 1 some k"]:
        """Which keys a part of the queries sees."""
        if mask is not None:
            return mask[:, :, part]
        return torch.arange(keys, device=visible.device) < visible[:, None, part, None]


def _exactly(
    bias: Bias, part: slice, q: Float[Tensor, "b h q d"], k: Float[Tensor, "b h k d"], seen: Bool[Tensor, "#b 1 some k"]
) -> Float[Tensor, "b h some k"]:
    """A bias for a part of the queries, in full precision whatever queries and keys are in."""
    exact = exact_dtype(q)
    with torch.autocast(q.device.type, enabled=False):
        return bias(part, q[:, :, part].to(exact), k.to(exact), seen)


@kind("attention")
@dataclass(frozen=True, kw_only=True)
class AttentionConfig(Settings):
    """Base of the settings of an attention: what a recipe names."""

    paper: ClassVar[str] = ""
    """Where it comes from; empty where it is ours."""

    def build(self, shape: Shape) -> Attention:
        raise BadInput(f"attention {name_of(type(self))} does not say how to build it")


@register("attention", "softmax")
@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig(AttentionConfig):
    """Scores as they are."""

    paper = "Vaswani et al., NeurIPS 2017"

    def build(self, shape: Shape) -> Attention:
        return Attention()


@register("attention", "scaled_softmax")
@dataclass(frozen=True, kw_only=True)
class ScaledSoftmaxConfig(AttentionConfig):
    """Scores times (1 + s log n), n the number of keys a query sees, s learned per head.

    Without it a head that picks one key among n is diluted as n grows.  Nakanishi (2025, scalable softmax)
    multiplies by s log n (`offset: 0`); the 1 keeps short sequences as they were, and is ours.
    """

    paper = "Nakanishi, 2025"

    start: Annotated[float, Bounds()] = 0.2
    """Initial s."""
    offset: Annotated[float, Bounds()] = 1.0
    """What s log n is added to."""
    scaled_heads: float = 1.0
    """Share of the heads, the last ones, whose scores grow; the others' stay as they are."""

    def __post_init__(self) -> None:
        if not 0 < self.scaled_heads <= 1:
            raise ValueError(f"scaled_heads must be in (0, 1], got {self.scaled_heads}")

    def build(self, shape: Shape) -> Attention:
        return ScaledSoftmax(shape.heads, self)


class GrowingScores(Attention):
    """Base of attentions whose scores grow with the number of keys."""

    def __init__(self, heads: int, config: ScaledSoftmaxConfig) -> None:
        super().__init__()
        self.config = config
        self.still_heads = heads - round(heads * config.scaled_heads)
        if self.still_heads == heads:
            raise BadInput(f"scaled_heads={config.scaled_heads} leaves none of {heads} heads whose scores grow")

    def grow(self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"]) -> Float[Tensor, "#b h q"]:
        """The growth of every head, were none of them still."""
        raise BadInput(f"{type(self).__name__} does not say how scores grow")

    def growth(self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"] | None) -> Float[Tensor, "#b h q"]:
        assert states is not None
        growth = self.grow(visible, states)
        if self.still_heads:
            still = torch.arange(growth.shape[1], device=growth.device) < self.still_heads
            growth = growth.masked_fill(still[:, None], 1.0)
        return growth


class ScaledSoftmax(GrowingScores):
    """Scores of each head grow with a slope of its own."""

    def __init__(self, heads: int, config: ScaledSoftmaxConfig) -> None:
        super().__init__(heads, config)
        self.slope = nn.Parameter(torch.full((heads,), config.start))

    def initialise(self) -> None:
        nn.init.constant_(self.slope, self.config.start)

    def grow(self, visible: Int[Tensor, "#b q"], states: Float[Tensor, "b q w"]) -> Float[Tensor, "#b h q"]:
        slope = self.slopes(states)
        return self.config.offset + slope[..., None] * visible.to(exact_dtype(slope)).log()[:, None, :]

    def slopes(self, states: Float[Tensor, "b q w"]) -> Float[Tensor, "#b h"]:
        """Return the slope of each head, for each row."""
        return self.slope[None]
