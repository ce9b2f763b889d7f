"""Planted tasks over small vocabularies, with every law a table: what the errors and the bounds are computed from."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.seeding import Draws
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import (
    FixedGaps,
    PositionLaw,
    TokenLaw,
    UniformPositions,
    UniformTokens,
    WeightedTokens,
    WindowPositions,
)
from longreach.theory.types import GapTypes, Types
from longreach.theory.words import check_laws, draw, power, words

Support = tuple[Int[Tensor, "n k"], Float[Tensor, "n"]]
"""Sets of positions, and the probability of each."""


@dataclass(frozen=True)
class Positions(ABC):
    """Q_pos, with its support listed."""

    @abstractmethod
    def support(self, length: int) -> Support:
        """Every set that can be planted, with its probability."""

    def sample(self, length: int, draws: Draws) -> Int[Tensor, "b k"]:
        positions, law = self.support(length)
        return positions[draw(law, draws.uniform("q_pos", 1)[:, 0])]


@dataclass(frozen=True, eq=False)
class TypeLaw(Positions):
    """A law over types, and a uniform choice among the sets of the type: gaps anywhere, offsets from the query, ..."""

    types: Types
    probabilities: Float[Tensor, "t"]
    """One for each type, the same at all lengths."""

    def __post_init__(self) -> None:
        check_laws("probabilities of types", self.probabilities)

    @classmethod
    def uniform(cls, types: Types, length: int = 0) -> "TypeLaw":
        """All types alike; the length matters only where the number of types depends on it."""
        count = types.num_types(length)
        return cls(types, torch.full((count,), 1 / count, dtype=torch.float64))

    def support(self, length: int) -> Support:
        positions, types = self.types.subsets(length)
        if len(self.probabilities) != self.types.num_types(length):
            raise ValueError(
                f"probabilities of types must be {self.types.num_types(length)} at length {length}, "
                f"got {len(self.probabilities)}"
            )
        law = (self.probabilities / torch.bincount(types, minlength=len(self.probabilities)))[types]
        return positions[law > 0], law[law > 0]


@dataclass(frozen=True)
class ListedPositions(Positions):
    """Any Q_pos, as a function from the length to sets and probabilities."""

    listed: Callable[[int], Support]

    def support(self, length: int) -> Support:
        positions, law = self.listed(length)
        check_laws("q_pos", law)
        return positions[law > 0], law[law > 0]


@dataclass(frozen=True, eq=False)
class PlantedTask:
    """A k-sparse planted correlation [paper's definition 3.2]: S* ~ q_pos and Z ~ q_voc, independent; X = Z on S*,
    mu elsewhere; the label is g_star(Z)."""

    k: int
    """Planted tokens."""
    vocab_size: int
    """Tokens are 0..vocab_size-1."""
    q_pos: Positions
    """Where Z stands."""
    q_voc: Float[Tensor, "n"]
    """The law of Z, over the numbers of the words."""
    mu: Float[Tensor, "v"]
    """The law of every other token."""
    g_star: Int[Tensor, "n"]
    """The class of each word."""
    num_classes: int = field(default=0)
    """How many classes there are; 0: as many as g_star shows."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")
        for name, table, size in (
            ("q_voc", self.q_voc, self.vocab_size**self.k),
            ("g_star", self.g_star, self.vocab_size**self.k),
            ("mu", self.mu, self.vocab_size),
        ):
            if len(table) != size:
                raise ValueError(f"{name} must have {size} entries, got {len(table)}")
        check_laws("q_voc", self.q_voc)
        check_laws("mu", self.mu)
        if int(self.g_star.min()) < 0:
            raise ValueError(f"g_star must be numbers from 0, got {int(self.g_star.min())}")
        seen = int(self.g_star.max()) + 1
        if self.num_classes == 0:
            object.__setattr__(self, "num_classes", seen)
        if self.num_classes < seen:
            raise ValueError(f"num_classes must be at least {seen}, got {self.num_classes}")

    def sample(
        self, length: int, draws: Draws
    ) -> tuple[Int[Tensor, "b {length}"], Int[Tensor, "b"], Int[Tensor, "b {self.k}"]]:
        """Tokens, labels and planted positions, one for each of the draws."""
        planted = draw(self.q_voc, draws.uniform("q_voc", 1)[:, 0])
        positions = self.q_pos.sample(length, draws)
        tokens = draw(self.mu, draws.uniform("mu", length))
        tokens.scatter_(1, positions, words(self.vocab_size, self.k)[planted])
        return tokens, self.g_star[planted], positions

    def with_positions(self, q_pos: Positions) -> "PlantedTask":
        """The same words elsewhere."""
        return replace(self, q_pos=q_pos)


def from_task(task: Planted) -> PlantedTask:
    """The tables of a task of the library whose laws are among those it comes with."""
    tokens = words(task.vocab_size, task.k)
    return PlantedTask(
        task.k,
        task.vocab_size,
        _positions(task.q_pos, task.k),
        power(token_table(task.q_voc, task.vocab_size), task.k),
        token_table(task.mu, task.vocab_size),
        task.g_star.label(tokens),
        task.g_star.num_classes(task.k),
    )


def token_table(law: TokenLaw, vocab_size: int) -> Float[Tensor, "v"]:
    """The law of one token, as a table."""
    if isinstance(law, UniformTokens):
        token = torch.arange(vocab_size)
        inside = ((token >= law.low) & (token <= law.high)).double()
        return inside / inside.sum()
    if isinstance(law, WeightedTokens):
        return torch.tensor(law.probabilities, dtype=torch.float64)
    raise ValueError(f"a token law must be uniform or weighted to become a table, got {type(law).__name__}")


def _positions(law: PositionLaw, k: int) -> Positions:
    if isinstance(law, UniformPositions):
        return ListedPositions(lambda length: _alike(torch.combinations(torch.arange(length), k)))
    if isinstance(law, FixedGaps):
        types = GapTypes(k, max(sum(law.gaps), k - 1))
        chosen, _ = types.of(torch.tensor([0, *law.gaps]).cumsum(0)[None], types.w + 1)
        return TypeLaw(types, torch.nn.functional.one_hot(chosen[0], len(types.shapes)).double())
    if isinstance(law, WindowPositions):
        width, at_end = law.width, law.at_end

        def listed(length: int) -> Support:
            start = torch.arange(length - width if at_end else 0, length - width + 1)
            inside = torch.combinations(torch.arange(width), k)
            return _alike((start[:, None, None] + inside).flatten(0, 1))

        return ListedPositions(listed)
    raise ValueError(f"a position law must be uniform, window or gaps to become a table, got {type(law).__name__}")


def _alike(rows: Int[Tensor, "m k"]) -> Support:
    """The uniform law over rows, some of which may be equal."""
    positions, counts = torch.unique(rows, dim=0, return_counts=True)
    return positions, counts / counts.sum(dtype=torch.float64)
