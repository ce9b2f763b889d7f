"""What an encoding is: a few hooks through which position IDs enter the model, identity by default."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.config import Settings
from longreach.config.registry import kind, name_of
from longreach.errors import BadInput
from longreach.positions.encodings.pairs import PairBias


class Shape(NamedTuple):
    """What an encoding or an attention must know of the model it serves."""

    width: int
    heads: int
    level_sizes: tuple[int, ...]
    """Per level of IDs the largest one, or 0 where they grow with length."""
    max_id: int
    """The largest ID of training, or 0 where the ID policy states none."""

    @property
    def levels(self) -> int:
        return len(self.level_sizes)

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


Rotation = tuple[Float[Tensor, "b 1 t p"], Float[Tensor, "b 1 t p"]]
"""Cosines and sines for p pairs of dimensions of every head: the first p dimensions with the p that follow."""


class Encoding(nn.Module):
    """The hooks.  All take IDs [batch, level, token]."""

    largest_id: int | None = None
    """The last ID the encoding has an entry for; None where there is no last one."""
    absolute: bool = False
    """Whether a state can know which ID it has, and not only how IDs differ."""
    knows_reserved: bool = False
    """Whether the reserved ID is known by its number, 0, so that IDs cannot be shifted with it."""

    @property
    def reaches_embeddings(self) -> bool:
        """Whether IDs change what the first layer reads."""
        return type(self).embed is not Encoding.embed

    @property
    def reaches_scores(self) -> bool:
        """Whether IDs enter the scores themselves, and not only the embeddings."""
        return type(self).rotation is not Encoding.rotation or self.biases_scores

    @property
    def biases_scores(self) -> bool:
        """Whether something is added to the scores."""
        return type(self).score_bias is not Encoding.score_bias

    def embed(self, ids: Int[Tensor, "b g t"]) -> Float[Tensor, "b t w"] | None:
        """Something to add to the token embeddings."""
        return None

    def rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation | None:
        """Angles, shared by all layers.  They count from `origin`, one ID per sequence, so that shifting all
        IDs changes nothing, not even in the last bit."""
        return None

    def key_rotation(self, ids: Int[Tensor, "b g t"], origin: Int[Tensor, "b g 1"]) -> Rotation | None:
        """Angles of the keys; None where they are the queries'."""
        return None

    def score_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> "Bias | None":
        """Something to add to the scores, shared by all layers."""
        return None


class Bias:
    """What is added to the scores, made when asked for a part of the queries: of all at once it may be too much."""

    def __init__(
        self,
        make: Callable[[slice], Float[Tensor, "b h q k"]],
        copies: int = 1,
        by_pair: Callable[[], PairBias | None] = lambda: None,
    ) -> None:
        self.make, self.copies = make, copies
        self.by_pair = by_pair
        """The same for single pairs; None where it can be made only for a part of the queries."""
        self.whole: Tensor | None = None
        self.kept = True
        """Whether the bias of all queries at once is made for the first layer and kept for the others."""

    def __call__(
        self,
        part: slice,
        q: Float[Tensor, "b h some d"],
        k: Float[Tensor, "b h k d"],
        seen: Bool[Tensor, "#b 1 some k"],
    ) -> Float[Tensor, "b h some k"]:
        """For a part of the queries: `q` are those, and `seen` are the keys that they see."""
        if part != slice(None) or not self.kept:
            return self.make(part)
        if self.whole is None:
            self.whole = self.make(part)
        return self.whole


class ContentBias(Bias):
    """A bias that depends on what queries and keys are, and not on their IDs alone: nothing of it can be kept."""

    def __init__(self, of: Callable[[slice, Tensor, Tensor, Tensor], Tensor], copies: int = 1) -> None:
        self.of, self.copies, self.kept = of, copies, False
        self.by_pair = lambda: None

    def __call__(
        self,
        part: slice,
        q: Float[Tensor, "b h some d"],
        k: Float[Tensor, "b h k d"],
        seen: Bool[Tensor, "#b 1 some k"],
    ) -> Float[Tensor, "b h some k"]:
        return self.of(part, q, k, seen)


class BiasEncoding(Encoding):
    """Base of encodings that add to the scores a function of how IDs differ."""

    copies: int = 8
    """About how many times the bias itself is held in memory while it is made."""

    def bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Float[Tensor, "b h q k"]:
        raise BadInput(f"{type(self).__name__} does not say what its bias is")

    def pair_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> PairBias | None:
        """The same for single pairs, whose scores are then never written out.  None: it can be had only as a whole."""
        return None

    @property
    def learns(self) -> bool:
        """Whether gradients of its weights are wanted now."""
        return torch.is_grad_enabled() and any(weight.requires_grad for weight in self.parameters())

    def score_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Bias | None:
        return Bias(
            lambda queries: self.bias(query_ids[:, :, queries], key_ids),
            self.copies,
            lambda: self.pair_bias(query_ids, key_ids),
        )


def sum_over_levels(
    query_ids: Int[Tensor, "b g q"],
    key_ids: Int[Tensor, "b g k"],
    of_level: Callable[[Int[Tensor, "b q k"], int], Float[Tensor, "b h q k"]],
) -> Float[Tensor, "b h q k"]:
    """Add up what each level says about the distances of its IDs, query minus key."""
    distances = query_ids[..., None] - key_ids[:, :, None]
    total = of_level(distances[:, 0], 0)
    for level in range(1, distances.shape[1]):
        total = total + of_level(distances[:, level], level)
    return total


@kind("encoding")
@dataclass(frozen=True, kw_only=True)
class EncodingConfig(Settings):
    """Base of the settings of an encoding: what a recipe names."""

    paper: ClassVar[str] = ""
    """Where it comes from; empty where it is ours."""

    def build(self, shape: Shape) -> Encoding:
        raise BadInput(f"encoding {name_of(type(self))} does not say how to build it")


def geometric(dim: int, base: float, device: torch.device) -> Float[Tensor, "half"]:
    """Return the frequencies base**(-2i/dim)."""
    half = (dim + 1) // 2
    return torch.logspace(0, -2 * (half - 1) / max(1, dim), half, base=base, dtype=torch.float64, device=device)


def rotate(x: Float[Tensor, "b h t d"], rotation: Rotation | None) -> Float[Tensor, "b h t d"]:
    """Turn the first dimensions, the first half of them against the second, as GPT-NeoX does."""
    if rotation is None:
        return x
    if not torch.is_grad_enabled():
        return _turn(x, *rotation)
    turned: Tensor = _Rotate.apply(x, *rotation)  # type: ignore[no-untyped-call]
    return turned


class _Rotate(torch.autograd.Function):
    """Its gradient is turned back, at once: autograd would go back through every slice, product and sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turn(gradients[0], cos, -sin), None, None


def _turn(
    x: Float[Tensor, "b h t d"], cos: Float[Tensor, "b 1 t p"], sin: Float[Tensor, "b 1 t p"]
) -> Float[Tensor, "b h t d"]:
    pairs = cos.shape[-1]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    # half by half: the formula over whole rows reads and writes twice as much
    parts = [torch.addcmul(first * cos, second, sin, value=-1), torch.addcmul(second * cos, first, sin)]
    if rest.shape[-1]:
        parts.append(rest)
    return torch.cat(parts, dim=-1).to(x.dtype)
