"""A bound U_l on the error of a table head at every length, from sums over the tokens of two sets [ours]."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.theory.heads import SparseHead
from longreach.theory.laws import PlantedTask, Positions, TypeLaw
from longreach.theory.pairs import PairTypes, count_pairs, pair_types, shifted_pairs
from longreach.theory.types import LocalTypes
from longreach.theory.words import number, power, words

_AT_ONCE = 1 << 21  # pairs of a type and a state at a time


def phi(head: SparseHead, task: PlantedTask, pairs: PairTypes) -> Float[Tensor, "n"]:
    """phi(theta) = E[A_S b_S / (A_S* + A_S)] for S != S*, E[b_S*] for S = S*; b_S is 1 - g(X_S)_Y."""
    check_weights(head, task, pairs)
    patterns, which = torch.unique(torch.cat([pairs.match, pairs.order], dim=1), dim=0, return_inverse=True)
    result = torch.empty(len(which), dtype=torch.float64)
    for index, pattern in enumerate(patterns):
        match, order = pattern[: task.k], pattern[task.k :]
        rows = (which == index).nonzero()[:, 0]
        planted, other, label, law = states(task, match)
        wrong = (1 - head.g[other, label]) * law
        if bool((match >= 0).all()):
            result[rows] = wrong.sum()
            continue
        own = number(words(task.vocab_size, task.k)[planted][:, order], task.vocab_size)
        for part in torch.split(rows, max(1, _AT_ONCE // len(law))):
            weight = head.a[pairs.other[part]][:, other]
            result[part] = (weight / (head.a[pairs.planted[part]][:, own] + weight)) @ wrong
    return result


def pair_bound(head: SparseHead, task: PlantedTask, length: int) -> float:
    """U_l = sum over theta of E[n_l(theta)] phi(theta), which is at least Err_l."""
    check_head(head, task)
    pairs = pair_types(head.types, task.q_pos, length)
    return float(pairs.count @ phi(head, task, pairs))


@dataclass(frozen=True, eq=False)
class Certificate:
    """U at all lengths.  Away from the ends it is intercept + slope * (number of IDs); without a coupling that number
    is the length."""

    types: LocalTypes
    counts: Callable[[int], Float[Tensor, "n"]]
    """E[n(theta)] at a length."""
    value: Float[Tensor, "n"]
    """phi(theta)."""
    slope: float
    intercept: float

    def __call__(self, length: int) -> float:
        return float(self.counts(length) @ self.value)

    @property
    def limit(self) -> float:
        """Where U goes as the length grows."""
        return self.intercept if self.slope == 0 else math.inf

    def horizon(self, delta: float) -> int | float:
        """The longest length with U <= delta: infinite if there is no longest, 0 if there is none."""
        if not 0 < delta < 1:
            raise ValueError(f"delta must be between 0 and 1, got {delta}")
        if self.limit <= delta:
            return math.inf
        types = self.types
        # from so many IDs on the counts of all pair types grow, and so does U
        below = types.shortest(2 * types.w + types.k * (math.isqrt(types.w) + 1) + 1)
        if self(below) > delta:
            return next((length for length in range(below, types.least - 1, -1) if self(length) <= delta), 0)
        beyond = 2 * below
        while self(beyond) <= delta:
            below, beyond = beyond, 2 * beyond
        while beyond - below > 1:
            middle = (below + beyond) // 2
            below, beyond = (middle, beyond) if self(middle) <= delta else (below, middle)
        return below


def pair_certificate(head: SparseHead, task: PlantedTask) -> Certificate:
    """The certificate of a head with local types, for a task whose positions are drawn by type."""
    check_head(head, task)
    types, law = head.types, task.q_pos
    if isinstance(types, LocalTypes) and types.anchored and _is_anchored(law, types):
        # the same sets are before the query at every length
        same = count_pairs(types, law, types.least)
        value = phi(head, task, same)
        return Certificate(
            types, lambda length: count_pairs(types, law, length).count, value, 0.0, float(same.count @ value)
        )
    pairs = shifted_pairs(types, law)
    if pairs is None or not isinstance(types, LocalTypes):
        raise ValueError(
            f"a certificate must have local types under the coupling of q_pos, got {type(types).__name__} "
            f"and {type(law).__name__}"
        )
    slope, intercept = pairs.slope(), pairs.intercept()
    value = phi(head, task, slope)  # the same pair types in both, and at every length
    return Certificate(
        types,
        lambda length: pairs.counted(length).count,
        value,
        float(slope.count @ value),
        float(intercept.count @ value),
    )


def check_head(head: SparseHead, task: PlantedTask) -> None:
    """A head must read what the task shows."""
    if (head.types.k, head.vocab_size, head.g.shape[1]) != (task.k, task.vocab_size, task.num_classes):
        raise ValueError(
            f"a head must have the task's k={task.k}, {task.vocab_size} tokens and {task.num_classes} classes, "
            f"got k={head.types.k}, {head.vocab_size} tokens and {head.g.shape[1]} classes"
        )


def check_weights(head: SparseHead, task: PlantedTask, pairs: PairTypes) -> None:
    """Planted sets must carry weight (assumption A0): otherwise there may be no mass at all."""
    word = words(task.vocab_size, task.k)[task.q_voc > 0]
    own = torch.unique(torch.cat([pairs.planted[:, None], pairs.order], dim=1), dim=0)
    weights = head.a[own[:, :1], number(word[:, own[:, 1:]], task.vocab_size).T]
    if not bool((weights > 0).all()):
        kind = int(own[(weights <= 0).any(1).nonzero()[0, 0], 0])
        raise ValueError(f"a must be positive at planted types and words, got 0 at type {kind}")


def _is_anchored(law: Positions, types: LocalTypes) -> bool:
    """Whether planted sets are always before the query as these types see it."""
    if not (isinstance(law, TypeLaw) and isinstance(law.types, LocalTypes)):
        return False
    return law.types.anchored and law.types.rule == types.rule


def states(task: PlantedTask, match: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All words at S* and S with their label and probability, where S shares the tokens `match` says."""
    likely = (task.q_voc > 0).nonzero()[:, 0]
    tokens = words(task.vocab_size, task.k)
    fresh = int((match < 0).sum())
    fresh_law = power(task.mu, fresh)
    possible = (fresh_law > 0).nonzero()[:, 0]
    planted, rest = likely.repeat_interleave(len(possible)), possible.repeat(len(likely))
    other = torch.empty(len(planted), task.k, dtype=torch.long)
    other[:, match >= 0] = tokens[planted][:, match[match >= 0]]
    other[:, match < 0] = words(task.vocab_size, fresh)[rest]
    law = task.q_voc[planted] * fresh_law[rest]
    return planted, number(other, task.vocab_size), task.g_star[planted], law
