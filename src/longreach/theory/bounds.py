"""Bounds on the error at a long length from the error at a short one [constants and proofs ours].

A bound of 1 or more says nothing.  It is returned as it is, with `vacuous` set, never cut off at 1.
"""

import math
from typing import NamedTuple

from longreach.theory.certificate import spread
from longreach.theory.coverage import coverage, interior_coverage
from longreach.theory.errors import err_exact
from longreach.theory.heads import SparseHead
from longreach.theory.laws import PlantedTask
from longreach.theory.types import LocalTypes


class Bound(NamedTuple):
    """A bound on an error."""

    value: float
    factor: float
    """What the error at the short length was multiplied by; infinite where a type is uncovered."""

    @property
    def vacuous(self) -> bool:
        return self.value >= 1


def master_bound(head: SparseHead, task: PlantedTask, short: int, long: int, error: float | None = None) -> Bound:
    """Theorem 0: Err_long <= kappa (1 + R_short) Err_short, for any types.

    `error` is Err_short; without it, it is computed exactly.
    """
    _check_lengths(short, long)
    kappa = coverage(task, head.types, short, long, head).kappa
    return _bound(kappa, head, task, short, error)


def local_bound(head: SparseHead, task: PlantedTask, short: int, long: int, error: float | None = None) -> Bound:
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
    return _bound(interior_coverage(task, types, short, long) * growth, head, task, short, error)


def rollout_bound(steps: int, error: float) -> Bound:
    """Theorem 3: if the token head and the ID head have teacher-forced errors of at most `error`, a rollout by best
    guesses is wrong somewhere with probability at most 4 * steps * error."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    _check_error(error)
    return Bound(4 * steps * error, 4.0 * steps)


def _bound(kappa: float, head: SparseHead, task: PlantedTask, short: int, error: float | None) -> Bound:
    error = err_exact(head, task, short) if error is None else error
    _check_error(error)
    if math.isinf(kappa):  # an uncovered type: no error at the short length says anything
        return Bound(math.inf, math.inf)
    factor = kappa * spread(head, task, short)
    return Bound(factor * error, factor)


def _check_lengths(short: int, long: int) -> None:
    if long < short:
        raise ValueError(f"long must be at least short={short}, got {long}")


def _check_error(error: float) -> None:
    if not 0 <= error <= 1:
        raise ValueError(f"error must be between 0 and 1, got {error}")
