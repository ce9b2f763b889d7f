"""Types: what of a set of k positions a head of the class may look at, besides the tokens there.

A set of k positions is always a row in the order of its types: by position, or by ID and then by track.
"""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import comb

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.theory.coupling import IDENTITY, CouplingRule
from longreach.theory.words import number

Subsets = tuple[Int[Tensor, "n k"], Int[Tensor, "n"]]
"""Sets of positions, and the type of each."""


@dataclass(frozen=True)
class Types(ABC):
    """A map from k-subsets of the positions to numbers; a negative number is no type, and has weight 0."""

    k: int
    """Positions in a set."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    def check_length(self, length: int) -> None:
        if length < self.k:
            raise ValueError(f"length must be at least k={self.k}, got {length}")

    @property
    def least(self) -> int:
        """The shortest length that has types."""
        return self.k

    @abstractmethod
    def num_types(self, length: int) -> int:
        """How many types there are up to this length."""

    @abstractmethod
    def subsets(self, length: int) -> Subsets:
        """All sets that have a type."""

    @abstractmethod
    def of(self, positions: Int[Tensor, "n k"], length: int) -> tuple[Int[Tensor, "n"], Int[Tensor, "n k"]]:
        """The type of each set, and which of its columns is first, second, ... in the order of its type."""


@dataclass(frozen=True)
class LocalTypes(Types):
    """Sets of bounded ID span, up to shifts of the IDs.

    Free: the shape counts (ID differences and tracks), not the place.  Anchored: IDs are counted back from the
    last one, which is the query's, and a type has one place.
    """

    w: int
    """The largest difference of IDs in a set (anchored: from the last ID)."""

    @property
    def anchored(self) -> bool:
        return False

    @property
    def rule(self) -> CouplingRule:
        return IDENTITY

    def __post_init__(self) -> None:
        super().__post_init__()
        least = -(-self.k // self.rule.multiplicity) - 1
        if self.w < least:
            raise ValueError(f"w must be at least {least} for k={self.k}, got {self.w}")

    def check_length(self, length: int) -> None:
        super().check_length(length)
        self._num_ids(length)

    def _num_ids(self, length: int) -> int:
        num_ids = self.rule.at(length).num_ids
        if num_ids <= self.w:
            raise ValueError(f"length must give more than w={self.w} IDs, got {num_ids} at length {length}")
        return num_ids

    def shortest(self, num_ids: int) -> int:
        """The shortest length with so many IDs."""
        length = num_ids * self.rule.multiplicity
        while self.rule.at(length).num_ids < num_ids:
            length += 1
        return length

    @property
    def least(self) -> int:
        return max(self.k, self.shortest(self.w + 1))

    @cached_property
    def shapes(self) -> Int[Tensor, "t k"]:
        """The cells of each type, by ID and track, in a window of w + 1 IDs."""
        cells = range((self.w + 1) * self.rule.multiplicity)
        starts = [(first,) for first in cells if self.anchored or first < self.rule.multiplicity]
        rows = [start + rest for start in starts for rest in itertools.combinations(cells[start[0] + 1 :], self.k - 1)]
        return torch.tensor(rows, dtype=torch.long)

    @cached_property
    def spans(self) -> Int[Tensor, "t"]:
        """Largest minus smallest ID of each type."""
        ids = self.shapes // self.rule.multiplicity
        return ids[:, -1] - ids[:, 0]

    @cached_property
    def _codes(self) -> Int[Tensor, "t"]:
        return number(self.shapes, (self.w + 1) * self.rule.multiplicity)

    def num_types(self, length: int) -> int:
        return len(self.shapes)

    def places(self, length: int) -> Int[Tensor, "t"]:
        """How many sets of each type there are."""
        num_ids = self._num_ids(length)
        return torch.ones_like(self.spans) if self.anchored else num_ids - self.spans

    def subsets(self, length: int) -> Subsets:
        self.check_length(length)
        coupling = self.rule.at(length)
        types = torch.arange(len(self.shapes))
        if self.anchored:
            return coupling.positions[self.shapes + self._window(coupling.num_ids)], types
        start = torch.arange(coupling.num_ids)
        fits = start < (coupling.num_ids - self.spans)[:, None]
        cells = self.shapes[:, None, :] + coupling.multiplicity * start[:, None]
        return coupling.positions[cells[fits]], types[:, None].expand_as(fits)[fits]

    def of(self, positions: Int[Tensor, "n k"], length: int) -> tuple[Int[Tensor, "n"], Int[Tensor, "n k"]]:
        self.check_length(length)
        coupling = self.rule.at(length)
        cells, order = coupling.cells[positions].sort(1)
        return torch.where(cells[:, 0] >= 0, self.of_cells(cells, coupling.num_ids), -1), order

    def of_cells(self, cells: Int[Tensor, "n k"], num_ids: int) -> Int[Tensor, "n"]:
        """The type of each set of cells in increasing order."""
        m = self.rule.multiplicity
        window = self._window(num_ids) if self.anchored else cells[:, :1] // m * m
        shape = cells - window
        inside = (shape[:, 0] >= 0) & (shape[:, -1] < (self.w + 1) * m)
        # every shape inside the window is among the types, so its code is found where it is searched
        return torch.where(inside, torch.searchsorted(self._codes, number(shape, (self.w + 1) * m)), -1)

    def _window(self, num_ids: int) -> int:
        """The first cell of the last w + 1 IDs."""
        return (num_ids - 1 - self.w) * self.rule.multiplicity


@dataclass(frozen=True)
class GapTypes(LocalTypes):
    """The gaps between neighbours, for sets of span at most w [paper's locality]."""


@dataclass(frozen=True)
class AnchoredTypes(LocalTypes):
    """The distances from the last token, which is the query's, for sets among the last w + 1 tokens."""

    @property
    def anchored(self) -> bool:
        return True


@dataclass(frozen=True)
class CoupledTypes(LocalTypes):
    """The differences of position IDs, and the tracks, for sets of ID span at most w."""

    coupling: CouplingRule
    """The IDs at every length."""
    at_query: bool = False
    """Count IDs back from the last one instead."""

    @property
    def rule(self) -> CouplingRule:
        return self.coupling

    @property
    def anchored(self) -> bool:
        return self.at_query


@dataclass(frozen=True)
class AbsoluteTypes(Types):
    """The positions themselves: nothing learned of one set says anything of another."""

    def num_types(self, length: int) -> int:
        return comb(length, self.k)

    def subsets(self, length: int) -> Subsets:
        self.check_length(length)
        positions = torch.combinations(torch.arange(length), self.k)
        return positions, self._rank(positions, length)

    def of(self, positions: Int[Tensor, "n k"], length: int) -> tuple[Int[Tensor, "n"], Int[Tensor, "n k"]]:
        self.check_length(length)
        ordered, order = positions.sort(1)
        return self._rank(ordered, length), order

    def _rank(self, ordered: Int[Tensor, "n k"], length: int) -> Int[Tensor, "n"]:
        """The place by largest position first, which does not change with the length."""
        choose = torch.tensor([[comb(p, j + 1) for j in range(self.k)] for p in range(length)])
        return choose[ordered, torch.arange(self.k)].sum(1)
