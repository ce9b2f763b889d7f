"""Pair types theta = (tau(S*), tau(S), which tokens they share), and how many S of each there are on average.

Given S*, the law of the tokens at S* and S depends on the pair type only.  This is what errors at different
lengths have in common; only the counts differ [ours].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.theory.laws import Positions, Support, TypeLaw
from longreach.theory.types import LocalTypes, Types


class PairType(NamedTuple):
    """One pair type, in words a person can read."""

    planted: int
    """The type of S*."""
    other: int
    """The type of S."""
    match: tuple[int, ...]
    """For each token of S, the number of the planted token it is, or -1."""


@dataclass(frozen=True, eq=False)
class PairTypes:
    """Pair types, and E[n(theta)] for each."""

    planted: Int[Tensor, "n"]
    other: Int[Tensor, "n"]
    match: Int[Tensor, "n k"]
    order: Int[Tensor, "n k"]
    """Which planted token is first, second, ... in the order of the head's types."""
    count: Float[Tensor, "n"]
    """Expected numbers of S.  Always floats: they are averages, and small ones matter."""

    @property
    def keys(self) -> Int[Tensor, "n q"]:
        return torch.cat([self.planted[:, None], self.other[:, None], self.match, self.order], dim=1)

    def merged(self) -> "PairTypes":
        """Each pair type once, and none that never occurs."""
        keys, place = torch.unique(self.keys, dim=0, return_inverse=True)
        count = torch.zeros(len(keys), dtype=torch.float64).index_add_(0, place, self.count)
        k = self.match.shape[1]
        planted, other, match, order = keys[:, 0], keys[:, 1], keys[:, 2 : 2 + k], keys[:, 2 + k :]
        return PairTypes(planted, other, match, order, count).select(count > 0)

    def select(self, chosen: Bool[Tensor, "n"]) -> "PairTypes":
        parts = (self.planted, self.other, self.match, self.order, self.count)
        return PairTypes(*(part[chosen] for part in parts))

    def listed(self) -> list[PairType]:
        rows = zip(self.planted.tolist(), self.other.tolist(), self.match.tolist(), strict=True)
        return [PairType(planted, other, tuple(match)) for planted, other, match in rows]


def pair_types(types: Types, q_pos: Positions, length: int) -> PairTypes:
    """All pair types at a length, by formula where there is one."""
    formula = shifted_pairs(types, q_pos)
    return count_pairs(types, q_pos, length) if formula is None else formula.at(length)


def shifted_pairs(types: Types, q_pos: Positions) -> "ShiftedPairs | None":
    """The formula, if both are local under the same coupling and the head's types are free to be anywhere."""
    if not (isinstance(types, LocalTypes) and isinstance(q_pos, TypeLaw) and isinstance(q_pos.types, LocalTypes)):
        return None
    if types.anchored or types.rule != q_pos.types.rule:
        return None
    return ShiftedPairs(types, q_pos.types, q_pos.probabilities)


def count_pairs(types: Types, q_pos: Positions, length: int) -> PairTypes:
    """By listing all planted sets, and for each all sets that share a position with it."""
    return planted_pairs(types, q_pos.support(length), length)[0].merged()


def planted_pairs(types: Types, support: Support, length: int) -> tuple[PairTypes, Int[Tensor, "m"]]:
    """The pair types of each planted set by itself, counted with its probability; and which planted set it is."""
    planted, law = support
    planted_type, order = types.of(planted, length)
    _check_inside(planted_type, planted)
    subsets, kind = types.subsets(length)
    num_types = types.num_types(length)

    hit, other = _meeting(planted, subsets)
    same = planted[hit][:, None, :] == subsets[other][:, :, None]  # by token of S, then of S*
    match = torch.where(same.any(2), same.long().argmax(2), -1)
    near = PairTypes(planted_type[hit], kind[other], match, order[hit], law[hit])

    # whole numbers until the law comes in, so that what cannot occur has exactly 0
    meeting = torch.bincount(hit * num_types + kind[other], minlength=len(planted) * num_types)
    free = torch.bincount(kind, minlength=num_types) - meeting.view(-1, num_types)
    row, far_type = free.nonzero(as_tuple=True)
    nothing = torch.full((len(row), types.k), -1)
    far = PairTypes(planted_type[row], far_type, nothing, order[row], law[row] * free[row, far_type])
    return join([near, far]), torch.cat([hit, row])


class ShiftedPairs:
    """The pair types of free local types, where counts have a formula in the number of IDs.

    S meets S* at a few shifts only.  A shift needs `left` IDs before S* and `right` behind it, so its expected
    count is the share of places of S* that have this room; all other S of the type share nothing with S*.
    """

    def __init__(self, types: LocalTypes, placed: LocalTypes, law: Float[Tensor, "p"]) -> None:
        m = types.rule.multiplicity
        likely = law.nonzero()[:, 0]
        cells = placed.shapes[likely]
        first = cells[:, :1] // m * m
        self.types, self.placed = types, placed
        self.probability = law[likely]
        self.planted = types.of_cells(cells, 0)
        _check_inside(self.planted, cells)
        self.spans = placed.spans[likely]
        self.before = (first // m)[:, 0]  # free IDs around S* in the window, where that is anchored
        self.behind = placed.w - self.before - self.spans

        # every shift at which some token of S is some token of S*, once
        own = (cells - first)[:, None, None, :]
        shape = types.shapes[None, :, :, None]
        shift = torch.where(own % m == shape % m, own // m - shape // m, _NEVER).flatten(2).sort(2).values
        new = shift != _NEVER
        new[..., 1:] &= shift[..., 1:] != shift[..., :-1]
        self.row, self.other, column = new.nonzero(as_tuple=True)
        self.shift = shift[self.row, self.other, column]
        moved = types.shapes[self.other] + self.shift[:, None] * m
        same = moved[:, :, None] == own[self.row, 0]
        self.match = torch.where(same.any(2), same.long().argmax(2), -1)
        self.left = (-self.shift).clamp(min=0)
        self.right = (self.shift + types.spans[self.other] - self.spans[self.row]).clamp(min=0)

    def at(self, length: int) -> PairTypes:
        """Those at a length."""
        return self.counted(length).merged()

    def counted(self, length: int) -> PairTypes:
        """With the counts at a length, in the order of `slope` and `intercept`."""
        self.types.check_length(length)
        self.placed.check_length(length)
        num_ids = self.types.rule.at(length).num_ids
        places, room = self._places(num_ids), self._room(num_ids)
        near = room / places[self.row] * self.probability[self.row]
        far = (places[:, None] * (num_ids - self.types.spans) - self._summed(room)) / places[:, None]
        return self._with_counts(near, far * self.probability[:, None])

    def slope(self) -> PairTypes:
        """With the counts per ID, of very many."""
        far = self.probability[:, None].expand(-1, len(self.types.shapes))
        return self._with_counts(torch.zeros_like(self.shift, dtype=torch.float64), far)

    def intercept(self) -> PairTypes:
        """With what is left of the counts when the slope is taken away, of very many IDs."""
        room = torch.ones_like(self.shift, dtype=torch.float64)
        if self.placed.anchored:
            room = (self.right <= self.behind[self.row]).double()
        far = -self.types.spans - self._summed(room)
        return self._with_counts(room * self.probability[self.row], far * self.probability[:, None])

    def _places(self, num_ids: int) -> Float[Tensor, "d"]:
        """How many places S* has."""
        return torch.ones_like(self.probability) if self.placed.anchored else (num_ids - self.spans).double()

    def _room(self, num_ids: int) -> Float[Tensor, "n"]:
        """How many of them leave room for S."""
        if not self.placed.anchored:
            return (num_ids - self.spans[self.row] - self.left - self.right).clamp(min=0).double()
        before = num_ids - 1 - self.placed.w + self.before
        return ((self.left <= before[self.row]) & (self.right <= self.behind[self.row])).double()

    def _summed(self, room: Float[Tensor, "n"]) -> Float[Tensor, "d t"]:
        total = torch.zeros(len(self.planted), len(self.types.shapes), dtype=torch.float64)
        return total.index_put_((self.row, self.other), room, accumulate=True)

    def _with_counts(self, near: Float[Tensor, "n"], far: Float[Tensor, "d t"]) -> PairTypes:
        order = torch.arange(self.types.k)
        meeting = PairTypes(self.planted[self.row], self.other, self.match, order.expand(len(near), -1), near)
        row, kind = torch.ones_like(far).nonzero(as_tuple=True)
        nothing = torch.full((len(row), self.types.k), -1)
        apart = PairTypes(self.planted[row], kind, nothing, order.expand(len(row), -1), far.flatten())
        return join([meeting, apart])


_NEVER = torch.iinfo(torch.long).max


def _meeting(planted: Int[Tensor, "p k"], subsets: Int[Tensor, "s k"]) -> tuple[Int[Tensor, "n"], Int[Tensor, "n"]]:
    """All pairs of a planted set and a set that share a position."""
    pairs = []
    for column in subsets.T.contiguous():
        ordered, by_position = column.sort()
        for own in planted.T.contiguous():
            start = torch.searchsorted(ordered, own)
            count = torch.searchsorted(ordered, own, right=True) - start
            row = torch.arange(len(own)).repeat_interleave(count)
            step = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
            pairs.append(row * len(subsets) + by_position[start[row] + step])
    unique = torch.unique(torch.cat(pairs))  # a pair with several shared positions is found several times
    return unique // len(subsets), unique % len(subsets)


def join(parts: Sequence[PairTypes]) -> PairTypes:
    """One after the other."""
    return PairTypes(
        torch.cat([part.planted for part in parts]),
        torch.cat([part.other for part in parts]),
        torch.cat([part.match for part in parts]),
        torch.cat([part.order for part in parts]),
        torch.cat([part.count for part in parts]),
    )


def _check_inside(types: Int[Tensor, "n"], positions: Int[Tensor, "n k"]) -> None:
    if bool((types < 0).any()):
        outside = positions[types < 0][0].tolist()
        raise ValueError(f"planted sets must have a type in the head's class, got none for {outside}")
