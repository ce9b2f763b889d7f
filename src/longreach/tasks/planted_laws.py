"""The four ingredients of a planted correlation: where (Q_pos), what (Q_voc), the rest (mu), the label (g*)."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config import Positive, Settings
from longreach.config.registry import kind, register
from longreach.errors import BadInput
from longreach.seeding import Draws

_LAST = torch.iinfo(torch.int64).max


@kind("position_law")
@dataclass(frozen=True, kw_only=True)
class PositionLaw(Settings):
    """Q_pos: which k positions carry the signal."""

    def min_length(self, k: int) -> int:
        raise BadInput(f"{type(self).__name__} does not say its shortest length")

    def sample(self, k: int, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b k"]:
        """k increasing positions below the length."""
        raise BadInput(f"{type(self).__name__} does not say how to draw positions")


@register("position_law", "uniform")
@dataclass(frozen=True, kw_only=True)
class UniformPositions(PositionLaw):
    """Every k-subset of the positions is equally likely."""

    def min_length(self, k: int) -> int:
        return k

    def sample(self, k: int, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b k"]:
        return _subset(k, length, draws, max_length)


@register("position_law", "window")
@dataclass(frozen=True, kw_only=True)
class WindowPositions(PositionLaw):
    """A uniform k-subset of a window at a uniform place: the locality assumption of the theory."""

    width: int = 8
    """Positions in the window; the span of the planted set is below it."""
    at_end: bool = False
    """Put the window at the end, next to the query, instead of anywhere."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"window.width must be at least 1, got {self.width}")

    def min_length(self, k: int) -> int:
        if k > self.width:
            raise BadInput(f"planted: k={k} positions do not fit into a window of {self.width}")
        return self.width

    def sample(self, k: int, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b k"]:
        room = (length - self.width)[:, None]
        start = room if self.at_end else draws.below("start", room + 1, 1)
        return start + _subset(k, torch.full_like(length, self.width), draws, self.width)


@register("position_law", "gaps")
@dataclass(frozen=True, kw_only=True)
class FixedGaps(PositionLaw):
    """Fixed distances between neighbours, at a uniform place."""

    gaps: list[int]
    """The k-1 distances."""

    def __post_init__(self) -> None:
        if any(gap < 1 for gap in self.gaps):
            raise ValueError(f"gaps must be at least 1, got {self.gaps}")

    def min_length(self, k: int) -> int:
        if len(self.gaps) != k - 1:
            raise BadInput(f"planted: k={k} needs {k - 1} gaps, got {self.gaps}")
        return sum(self.gaps) + 1

    def sample(self, k: int, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b k"]:
        offsets = _constant((0, *self.gaps), torch.long, length.device).cumsum(0)
        return draws.below("start", (length - sum(self.gaps))[:, None], 1) + offsets


@kind("token_law")
@dataclass(frozen=True, kw_only=True)
class TokenLaw(Settings):
    """Q_voc (with the k planted tokens as columns) or mu (with one column per position)."""

    def check(self, vocab_size: int) -> None:
        """Refuse what does not fit the vocabulary."""

    def sample(self, columns: int, draws: Draws) -> Int[Tensor, "b c"]:
        raise BadInput(f"{type(self).__name__} does not say how to draw tokens")


@register("token_law", "uniform")
@dataclass(frozen=True, kw_only=True)
class UniformTokens(TokenLaw):
    """Independent and uniform over low..high, both included."""

    low: int = 0
    """Smallest token."""
    high: int = 1
    """Largest token."""

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"a token law needs 0 <= low <= high, got {self.low} and {self.high}")

    def check(self, vocab_size: int) -> None:
        if self.high >= vocab_size:
            raise BadInput(f"planted: token {self.high} is outside a vocabulary of {vocab_size}")

    def sample(self, columns: int, draws: Draws) -> Int[Tensor, "b c"]:
        return self.low + draws.below("tokens", self.high - self.low + 1, columns)


@register("token_law", "weighted")
@dataclass(frozen=True, kw_only=True)
class WeightedTokens(TokenLaw):
    """Independent, token i with the i-th probability."""

    probabilities: list[float]
    """One for each token, adding up to 1."""

    def __post_init__(self) -> None:
        total = sum(self.probabilities)
        if not all(p >= 0 for p in self.probabilities) or not abs(total - 1) < 1e-6:
            raise ValueError(f"probabilities must not be negative and must add up to 1, got {self.probabilities}")

    def check(self, vocab_size: int) -> None:
        if len(self.probabilities) != vocab_size:
            raise BadInput(f"planted: {len(self.probabilities)} probabilities for a vocabulary of {vocab_size}")

    def sample(self, columns: int, draws: Draws) -> Int[Tensor, "b c"]:
        edges = _constant(tuple(self.probabilities), torch.float64, draws.key.device).cumsum(0)[:-1]
        return torch.bucketize(draws.uniform("tokens", columns), edges, right=True)


@kind("label")
@dataclass(frozen=True, kw_only=True)
class Label(Settings):
    """g*: from the k planted tokens to a class."""

    def check(self, vocab_size: int) -> None:
        """Refuse what does not fit the vocabulary."""

    def num_classes(self, k: int) -> int:
        raise BadInput(f"{type(self).__name__} does not say how many classes it has")

    def label(self, planted: Int[Tensor, "b k"]) -> Int[Tensor, "b"]:
        raise BadInput(f"{type(self).__name__} does not say its labels")


@register("label", "sum_mod")
@dataclass(frozen=True, kw_only=True)
class SumMod(Label):
    """The sum of the planted tokens modulo p; with p = 2 their parity."""

    p: int = 2
    """The modulus, and the number of classes."""

    def __post_init__(self) -> None:
        if self.p < 2:
            raise ValueError(f"sum_mod.p must be at least 2, got {self.p}")

    def num_classes(self, k: int) -> int:
        return self.p

    def label(self, planted: Int[Tensor, "b k"]) -> Int[Tensor, "b"]:
        return planted.sum(1) % self.p


@register("label", "table")
@dataclass(frozen=True, kw_only=True)
class TableLabel(Label):
    """Any function, as a table over V^k in row-major order."""

    vocab_size: Positive
    """Tokens per position of the table."""
    classes: list[int]
    """The class of each of the vocab_size**k tuples."""

    def __post_init__(self) -> None:
        if not self.classes or min(self.classes) < 0:
            raise ValueError(f"classes must be numbers from 0, got {self.classes}")

    def check(self, vocab_size: int) -> None:
        if self.vocab_size != vocab_size:
            raise BadInput(f"planted: a table over {self.vocab_size} tokens for a vocabulary of {vocab_size}")

    def num_classes(self, k: int) -> int:
        if len(self.classes) != self.vocab_size**k:
            raise BadInput(f"planted: a table for k={k} needs {self.vocab_size**k} classes, got {len(self.classes)}")
        return max(self.classes) + 1

    def label(self, planted: Int[Tensor, "b k"]) -> Int[Tensor, "b"]:
        index = torch.zeros_like(planted[:, 0])
        for column in planted.unbind(1):
            index = index * self.vocab_size + column
        return _constant(tuple(self.classes), torch.long, planted.device)[index]


@lru_cache(maxsize=64)
def _constant(values: tuple[int | float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copied to the device once: a copy from the host in every step could not be recorded as part of it."""
    return torch.tensor(values, dtype=dtype, device=device)


def _subset(k: int, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b k"]:
    """A uniform k-subset of 0..length-1, sorted."""
    beyond = torch.arange(max_length, device=length.device) >= length[:, None]
    chosen = draws.bits("subset", max_length).masked_fill(beyond, _LAST).argsort(1)[:, :k]
    return chosen.sort(1).values
