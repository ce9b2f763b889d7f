"""Coverage: how much more often a pair type occurs at a long length than at short ones [ours]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.theory.certificate import phi
from longreach.theory.heads import SparseHead
from longreach.theory.laws import PlantedTask
from longreach.theory.pairs import PairType, PairTypes, join, pair_types, planted_pairs
from longreach.theory.types import LocalTypes, Types

Short: TypeAlias = int | Sequence[int]
"""A training length, or several that come equally often; a length that is named twice comes twice as often."""


@dataclass(frozen=True)
class Coverage:
    """kappa = sup over pair types of E[n_long] / E[n_short]; infinite if one occurs at the long length only."""

    kappa: float
    worst: PairType | None
    """A pair type with this ratio; none if there are no pair types."""
    uncovered: list[PairType]
    """Pair types that the short lengths never show."""


def coverage(task: PlantedTask, types: Types, short: Short, long: int, head: SparseHead | None = None) -> Coverage:
    """Coverage of one length by others; with a head, of those pair types only at which it can err (phi > 0)."""
    seen = join([pair_types(types, task.q_pos, length) for length in lengths_of(short)])
    asked = pair_types(types, task.q_pos, long)
    if head is not None:
        asked = asked.select(phi(head, task, asked) > 0)
    if not len(asked.count):
        return Coverage(0.0, None, [])
    ratio = asked.count / counts_of(asked, seen) * len(lengths_of(short))
    worst = int(ratio.argmax())
    return Coverage(float(ratio[worst]), asked.listed()[worst], asked.select(ratio.isinf()).listed())


class Partial(NamedTuple):
    """Coverage of all planted sets but some."""

    kappa: float
    """The largest ratio of counts, where sets that are given up count nothing at the long length."""
    given_up: float
    """The probability of those at the long length."""


@dataclass(frozen=True, eq=False)
class Partials:
    """The ways to give up planted sets of the long length: those whose pair types are covered worst go first."""

    ways: list[Partial]
    """From giving up all that meet a pair type to giving up only what meets an uncovered one; kappa grows."""
    uncovered: list[PairType]
    """Pair types that the short lengths never show."""

    def up_to(self, max_kappa: float) -> Partial:
        """The one that gives up least with a kappa of at most this."""
        return [way for way in self.ways if way.kappa <= max_kappa][-1]


def partial_coverage(
    task: PlantedTask, types: Types, short: Short, long: int, head: SparseHead | None = None
) -> Partials:
    """Coverage where some planted sets may be given up; those without a type always are."""
    lengths = lengths_of(short)
    seen = join([_typed_pairs(task, types, length)[0] for length in lengths])
    asked, planted = _typed_pairs(task, types, long)
    positions, law = task.q_pos.support(long)
    inside = types.of(positions, long)[0] >= 0

    merged, which = asked.merged(), torch.unique(asked.keys, dim=0, return_inverse=True)[1]
    covered = counts_of(merged, seen) / len(lengths)
    ratio = merged.count / covered
    if head is not None:
        ratio = ratio.where(phi(head, task, merged) > 0, 0.0)
    worst = torch.where(inside, 0.0, torch.inf).double().scatter_reduce_(0, planted, ratio[which], "amax")
    order = worst[planted].argsort()
    count, which, level = asked.count[order], which[order], worst[planted][order]

    ways = [Partial(0.0, float(law[worst > 0].sum()))]
    kept, total = 0, torch.zeros_like(ratio)
    for limit in torch.unique(worst[(worst > 0) & worst.isfinite()]):
        end = int(torch.searchsorted(level, limit, right=True))
        total.index_add_(0, which[kept:end], count[kept:end])
        kept = end
        kappa = float((total / covered).where((total > 0) & (ratio > 0), 0.0).max())
        ways.append(Partial(kappa, float(law[worst > limit].sum())))
    return Partials(ways, merged.select(ratio.isinf()).listed())


def interior_coverage(task: PlantedTask, types: LocalTypes, short: int, long: int) -> float:
    """C0 of theorem 1: the largest Q_long(type) / Q_short(type, w IDs away from both ends); infinite if one is never
    there.  Anchored types have no ends: there it is the largest ratio of probabilities."""
    asked = _type_law(task, types, long, margin=0)
    seen = _type_law(task, types, short, margin=0 if types.anchored else types.w)
    occurs = asked > 0
    return float((asked[occurs] / seen[occurs]).max())


def lengths_of(short: Short) -> Sequence[int]:
    lengths = [short] if isinstance(short, int) else short
    if not lengths:
        raise ValueError(f"short must be a length or several, got {list(lengths)}")
    return lengths


def counts_of(asked: PairTypes, seen: PairTypes) -> Float[Tensor, "n"]:
    """How often each pair type that is asked is seen."""
    _, place = torch.unique(torch.cat([seen.keys, asked.keys]), dim=0, return_inverse=True)
    table = torch.zeros(len(place), dtype=torch.float64)
    table.index_add_(0, place[: len(seen.count)], seen.count)
    return table[place[len(seen.count) :]]


def _typed_pairs(task: PlantedTask, types: Types, length: int) -> tuple[PairTypes, Int[Tensor, "n"]]:
    """`planted_pairs` of those planted sets that have a type."""
    positions, law = task.q_pos.support(length)
    typed = (types.of(positions, length)[0] >= 0).nonzero()[:, 0]
    pairs, planted = planted_pairs(types, (positions[typed], law[typed]), length)
    return pairs, typed[planted]


def _type_law(task: PlantedTask, types: LocalTypes, length: int, margin: int) -> Float[Tensor, "t"]:
    """The probability of each type of S* with this many IDs before and behind it."""
    positions, law = task.q_pos.support(length)
    kind, _ = types.of(positions, length)
    if bool((kind < 0).any()):
        raise ValueError(f"planted sets must have a type in the class, got none for {positions[kind < 0][0].tolist()}")
    coupling = types.rule.at(length)
    ids = coupling.ids[positions]
    inside = (ids.amin(1) > margin) & (ids.amax(1) <= coupling.num_ids - margin)
    return torch.zeros(types.num_types(length), dtype=torch.float64).index_add_(0, kind[inside], law[inside])
