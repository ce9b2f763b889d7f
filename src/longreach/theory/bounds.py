"""Bounds on the error at a long length from the error at short ones [constants and proofs ours].

A bound of 1 or more says nothing.  It is returned as it is, with `vacuous` set, never cut off at 1.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from longreach.theory.coverage import Short, coverage, interior_coverage, lengths_of, partial_coverage
from longreach.theory.errors import err_exact
from longreach.theory.heads import SparseHead
from longreach.theory.laws import PlantedTask
from longreach.theory.spread import spread
from longreach.theory.types import LocalTypes

Spread: TypeAlias = Callable[[SparseHead, PlantedTask, int], float]
"""How 1 + R is found: `spread`, or `spread_bound` where the sets are too many to list."""


class Bound(NamedTuple):
    """A bound on an error."""

    value: float
    factor: float
    """What the error at the short lengths was multiplied by; infinite where a type is uncovered."""
    given_up: float = 0.0
    """The probability of planted sets that the bound takes for lost, which was added."""

    @property
    def vacuous(self) -> bool:
        return self.value >= 1


def master_bound(
    head: SparseHead,
    task: PlantedTask,
    short: Short,
    long: int,
    error: float | None = None,
    spread_by: Spread = spread,
) -> Bound:
    """Theorem 0: Err_long <= kappa (1 + R_short) Err_short, for any types.

    `error` is Err_short, with several short lengths the mean over them; without it, it is computed exactly.
    """
    _check_lengths(short, long)
    kappa = coverage(task, head.types, short, long, head).kappa
    return _bound(kappa, head, task, short, error, spread_by)


def partial_bound(
    head: SparseHead,
    task: PlantedTask,
    short: Short,
    long: int,
    error: float | None = None,
    max_kappa: float | Literal["best"] = math.inf,
    spread_by: Spread = spread,
) -> Bound:
    """Theorem 0 where some pair types are missing: Err_long <= kappa (1 + R_short) Err_short + Pr[S* is given up].

    Given up are the planted sets that form a pair type which is not covered, and of the others, worst first, as
    many as bring kappa to `max_kappa`; with "best", as many as make the bound smallest.  A planted set counts in
    full even if only some of the words there can do harm, so the probability is an upper bound.
    Planted sets without a type are given up at the long length, and refused at the short ones, where the head must
    weigh what is planted.  `error` is as in `master_bound`.
    """
    _check_lengths(short, long)
    if max_kappa != "best" and not max_kappa >= 0:
        raise ValueError(f"max_kappa must not be negative, got {max_kappa}")
    error = _error(head, task, short, error)
    elsewhere = _spread(head, task, short, spread_by)
    partials = partial_coverage(task, head.types, short, long, head)
    ways = partials.ways if max_kappa == "best" else [partials.up_to(max_kappa)]
    bounds = [Bound(kappa * elsewhere * error + lost, kappa * elsewhere, lost) for kappa, lost in ways]
    return min(bounds, key=lambda bound: bound.value)


def local_bound(
    head: SparseHead,
    task: PlantedTask,
    short: int,
    long: int,
    error: float | None = None,
    spread_by: Spread = spread,
) -> Bound:
    """Theorems 1 and 2: Err_long <= C0 (1 + R_short) (c_long - w) / (c_short - w - v) Err_short, v = min(k^2, 2w + 1).

    c is the number of IDs, which without a coupling (theorem 1) is the length.  For anchored types the factor
    with the lengths is 1.  `error` is Err_short; without it, it is computed exactly.
    """
    _check_lengths(short, long)
    types = head.types
    if not isinstance(types, LocalTypes):
        raise ValueError(f"types must be local for this bound, got {type(types).__name__}")
    types.check_length(short)
    growth = 1.0
    if not types.anchored:
        w, v = types.w, min(types.k**2, 2 * types.w + 1)
        few, many = types.rule.at(short).num_ids, types.rule.at(long).num_ids
        needed = max(3 * w + 1, w + v + 1)
        if few < needed:
            raise ValueError(f"short must give at least {needed} IDs for w={w} and k={types.k}, got {few}")
        growth = (many - w) / (few - w - v)
    return _bound(interior_coverage(task, types, short, long) * growth, head, task, short, error, spread_by)


def rollout_bound(steps: int, error: float) -> Bound:
    """Theorem 3: if the token head and the ID head have teacher-forced errors of at most `error`, a rollout by best
    guesses is wrong somewhere with probability at most 4 * steps * error."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    _check_error(error)
    return Bound(4 * steps * error, 4.0 * steps)


def _bound(
    kappa: float, head: SparseHead, task: PlantedTask, short: Short, error: float | None, spread_by: Spread
) -> Bound:
    error = _error(head, task, short, error)
    if math.isinf(kappa):  # an uncovered type: no error at the short lengths says anything
        return Bound(math.inf, math.inf)
    factor = kappa * _spread(head, task, short, spread_by)
    return Bound(factor * error, factor)


def _error(head: SparseHead, task: PlantedTask, short: Short, error: float | None) -> float:
    if error is None:
        lengths = lengths_of(short)
        return sum(err_exact(head, task, length) for length in lengths) / len(lengths)
    _check_error(error)
    return error


def _spread(head: SparseHead, task: PlantedTask, short: Short, spread_by: Spread) -> float:
    return max(spread_by(head, task, length) for length in set(lengths_of(short)))


def _check_lengths(short: Short, long: int) -> None:
    longest = max(lengths_of(short))
    if long < longest:
        raise ValueError(f"long must be at least short={longest}, got {long}")


def _check_error(error: float) -> None:
    if not 0 <= error <= 1:
        raise ValueError(f"error must be between 0 and 1, got {error}")
