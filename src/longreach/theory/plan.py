"""What to train on: the length that covers another well enough, and the coupling that does [ours]."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from longreach.theory.coverage import Short, counts_of, partial_coverage
from longreach.theory.laws import PlantedTask, TypeLaw
from longreach.theory.pairs import PairType, pair_types
from longreach.theory.types import Types


class TrainingLengthPlan(NamedTuple):
    """The shortest length to train at."""

    length: int | None
    """None if no length will do."""
    kappa: float
    """How well it covers the long length; if no length will do, the best that there is."""
    uncovered: list[PairType]
    """If no length will do: the pair types that none of them shows."""


def shortest_training(
    task: PlantedTask, types: Types, long: int, max_kappa: float, lengths: Iterable[int] | None = None
) -> TrainingLengthPlan:
    """The shortest of some lengths (all below the long one) whose coverage of the long one is at most this kappa.

    They are tried one by one, since kappa may rise with the length where the law changes with it: gaps that
    are planted at odd lengths may be missing at even ones.
    """
    if not max_kappa > 0:
        raise ValueError(f"max_kappa must be positive, got {max_kappa}")
    if lengths is None:
        placed = task.q_pos.types.least if isinstance(task.q_pos, TypeLaw) else task.k
        lengths = range(max(types.least, placed), long)
    asked = pair_types(types, task.q_pos, long)
    best, unseen = math.inf, asked.count > 0
    for length in sorted(lengths):
        ratio = asked.count / counts_of(asked, pair_types(types, task.q_pos, length))
        kappa = float(ratio.max())
        if kappa <= max_kappa:
            return TrainingLengthPlan(length, kappa, [])
        best, unseen = min(best, kappa), unseen & ratio.isinf()
    return TrainingLengthPlan(None, best, asked.select(unseen).listed())


class Ranked(NamedTuple):
    """How well a coupling covers a task."""

    name: str
    kappa: float
    """Infinite where something is uncovered."""
    uncovered: int
    """How many pair types the short lengths never show."""
    lost: float
    """The probability of planted sets with such a pair type, or with none at all, at the long length."""


def rank_couplings(task: PlantedTask, candidates: Mapping[str, Types], short: Short, long: int) -> list[Ranked]:
    """Candidates from best to worst: by kappa, and behind them those that leave something uncovered, by how much."""
    ranked = []
    for name, types in candidates.items():
        partials = partial_coverage(task, types, short, long)
        kappa, lost = partials.ways[-1]
        ranked.append(Ranked(name, math.inf if lost else kappa, len(partials.uncovered), lost))
    return sorted(ranked, key=lambda one: (one.lost, one.kappa))
