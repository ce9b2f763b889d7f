"""Coverage: how much more often a pair type occurs at a long length than at a short one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.theory.certificate import phi
from longreach.theory.heads import SparseHead
from longreach.theory.laws import PlantedTask
from longreach.theory.pairs import PairType, PairTypes, pair_types
from longreach.theory.types import LocalTypes, Types


@dataclass(frozen=True)
class Coverage:
    """kappa = sup over pair types of E[n_long] / E[n_short]; infinite if one occurs at the long length only."""

    kappa: float
    worst: PairType | None
    """A pair type with this ratio; none if there are no pair types."""
    uncovered: list[PairType]
    """Pair types that the short length never shows."""


def coverage(task: PlantedTask, types: Types, short: int, long: int, head: SparseHead | None = None) -> Coverage:
    """Coverage of one length by another; with a head, of those pair types only at which it can err (phi > 0)."""
    seen, asked = pair_types(types, task.q_pos, short), pair_types(types, task.q_pos, long)
    if head is not None:
        asked = asked.select(phi(head, task, asked) > 0)
    if not len(asked.count):
        return Coverage(0.0, None, [])
    ratio = asked.count / _counts(seen, asked)
    worst = int(ratio.argmax())
    return Coverage(float(ratio[worst]), asked.listed()[worst], asked.select(ratio.isinf()).listed())


def interior_coverage(task: PlantedTask, types: LocalTypes, short: int, long: int) -> float:
    """C0 of theorem 1: the largest Q_long(type) / Q_short(type, w IDs away from both ends); infinite if one is never
    there.  Anchored types have no ends: there it is the largest ratio of probabilities."""
    asked = _type_law(task, types, long, margin=0)
    seen = _type_law(task, types, short, margin=0 if types.anchored else types.w)
    occurs = asked > 0
    return float((asked[occurs] / seen[occurs]).max())


def _counts(seen: PairTypes, asked: PairTypes) -> Float[Tensor, "n"]:
    """The counts in `seen` of the pair types in `asked`."""
    _, place = torch.unique(torch.cat([seen.keys, asked.keys]), dim=0, return_inverse=True)
    table = torch.zeros(int(place.max()) + 1, dtype=torch.float64)
    table[place[: len(seen.count)]] = seen.count
    return table[place[len(seen.count) :]]


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
