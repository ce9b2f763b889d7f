"""Position couplings as the theory sees them: every ID at equally many positions, so a place is an ID and a track."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Coupling:
    """IDs 1..c, each at the same number m of positions, told apart by tracks 0..m-1.

    ID 0 is reserved: for positions such as `=` and the stop token, which no type contains.
    """

    ids: Int[Tensor, "l"]
    tracks: Int[Tensor, "l"]

    def __post_init__(self) -> None:
        if int(self.ids.min()) < 0:
            raise ValueError(f"coupling IDs must not be negative, got {int(self.ids.min())}")
        counts = torch.bincount(self.ids)[1:]
        if len(counts) == 0:
            raise ValueError("coupling must give an ID to some position, got reserved positions only")
        if int(counts.min()) != int(counts.max()):
            few, many = int(counts.argmin()) + 1, int(counts.argmax()) + 1
            raise ValueError(
                f"coupling must give every ID to equally many positions, got ID {few} at {int(counts.min())} "
                f"and ID {many} at {int(counts.max())}"
            )
        used = self.cells[self.ids > 0].sort().values
        if not torch.equal(used, torch.arange(len(used))):
            raise ValueError(f"coupling tracks must number the positions of each ID from 0, got {self.tracks.tolist()}")

    @classmethod
    def from_map(cls, ids: Sequence[int] | Int[Tensor, "l"]) -> "Coupling":
        """From the ID of each position; the positions of an ID are its tracks, from left to right."""
        ids = torch.as_tensor(ids, dtype=torch.long)
        order = ids.argsort(stable=True)
        ordered = ids[order]
        tracks = torch.empty_like(ids)
        tracks[order] = torch.arange(len(ids)) - torch.searchsorted(ordered, ordered)
        return cls(ids, tracks)

    @property
    def num_ids(self) -> int:
        return int(self.ids.max())

    @cached_property
    def multiplicity(self) -> int:
        """How many positions share an ID."""
        return int((self.ids == 1).sum())

    @cached_property
    def cells(self) -> Int[Tensor, "l"]:
        """IDs and tracks as one number, by ID and then by track; negative where reserved."""
        return torch.where(self.ids > 0, (self.ids - 1) * self.multiplicity + self.tracks, -1)

    @cached_property
    def positions(self) -> Int[Tensor, "n"]:
        """The position of each cell."""
        return self.cells.argsort()[int((self.ids == 0).sum()) :]

    def fold(self, tokens: Int[Tensor, "b l"]) -> Int[Tensor, "b c m"]:
        """The sequence over IDs, with one token per track at each."""
        return tokens[:, self.positions].reshape(-1, self.num_ids, self.multiplicity)

    def unfold(self, folded: Int[Tensor, "b c m"], reserved: int = 0) -> Int[Tensor, "b l"]:
        """The sequence over positions, with this token where IDs are reserved."""
        tokens = torch.full((len(folded), len(self.ids)), reserved)
        tokens[:, self.positions] = folded.flatten(1)
        return tokens

    def id_span(self, positions: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """Largest minus smallest ID of each set of positions."""
        ids = self.ids[positions]
        return ids.amax(1) - ids.amin(1)


@dataclass(frozen=True)
class CouplingRule:
    """A coupling for every length."""

    multiplicity: int
    """How many positions share an ID, at every length."""
    ids: Callable[[int], Sequence[int] | Tensor]
    """The IDs of the positions at a length."""

    def at(self, length: int) -> Coupling:
        coupling = Coupling.from_map(self.ids(length))
        if coupling.multiplicity != self.multiplicity:
            raise ValueError(
                f"coupling must give each ID to {self.multiplicity} positions, got {coupling.multiplicity} "
                f"at length {length}"
            )
        return coupling


def _count(length: int) -> Tensor:
    return torch.arange(1, length + 1)


def _blocks(length: int, blocks: int) -> Tensor:
    ids = torch.arange(1, length // blocks + 1).repeat(blocks)
    return torch.cat([ids, torch.zeros(length - len(ids), dtype=torch.long)])


IDENTITY = CouplingRule(1, _count)
"""Every position is its own ID: no coupling."""


def blocks(count: int) -> CouplingRule:
    """Blocks of equal length, such as the numbers of a sum; what is left over at the end is reserved."""
    if count < 1:
        raise ValueError(f"blocks must be at least 1, got {count}")
    return CouplingRule(count, lambda length: _blocks(length, count))
