"""How errors grow beyond the lengths at which they were measured.

A head of the class with stray mass s on each of the other tokens errs with e = E s l / (1 + s l), where E is the
error of a constant guess: linear at first, as theorem 1 has it, and level in the end, as dilution has it.  So
u = E e / (E - e) is a line in l, c0 + c1 l with coefficients that are not negative, and can be extended [ours].
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.diagnosis.estimates import Estimate
from longreach.seeding import stream

_REPEATS, _ROUNDS = 400, 4
_MARGIN = 0.05
"""What the form itself may be wrong by, once and for each doubling of the length: fixed on planted tasks of which
none is among those that the docs report."""


def extend(
    losses: Mapping[int, Float[Tensor, "n"]], chance: float, lengths: Sequence[int], seed: int = 0
) -> dict[int, Estimate]:
    """The mean loss at other lengths, from single losses 1 - p(right) at some.  The interval is that of the samples,
    widened for the form: it holds if errors go on growing as they do, and says nothing about a break."""
    measured = torch.tensor(sorted(losses), dtype=torch.float64)
    if len(measured) < 3:
        raise ValueError(f"losses must be known at 3 lengths or more, got {len(measured)}")
    means = []
    for length in sorted(losses):
        values = losses[length].double()
        again = stream(seed, f"diagnose growth/{length}", torch.arange(_REPEATS))
        drawn = again.below("rows", len(values), len(values))
        means.append(torch.cat([values.mean()[None], values[drawn].mean(1)]))
    curve = torch.stack(means, dim=1).clamp(max=0.98 * chance)
    u = chance * curve / (chance - curve)
    c0, c1 = _line(measured, u)
    result = {}
    for length in lengths:
        v = c0 + c1 * length
        error = v / (1 + v / chance)
        low, high = error[1:].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        value, margin = float(error[0]), _MARGIN * (1 + max(0.0, math.log2(length / float(measured[-1]))))
        low, high = min(low, value) * max(0.0, 1 - margin), max(high, value) * (1 + margin)
        result[length] = Estimate(value, low, min(1.0, high))
    return result


def _line(x: Float[Tensor, "n"], y: Float[Tensor, "r n"]) -> tuple[Tensor, Tensor]:
    """Least squares with neither coefficient negative, one line for each row.

    Points are weighted by what the line itself says: a mean of rare losses varies as much as it is large.  Not by how
    much single losses vary, for then a length at which no rare loss happened to occur would decide alone.
    """
    weight = torch.ones_like(y)
    for _ in range(_ROUNDS):
        total = weight.sum(1)
        mean_x, mean_y = (weight * x).sum(1) / total, (weight * y).sum(1) / total
        off_x, off_y = x - mean_x[:, None], y - mean_y[:, None]
        c1 = ((weight * off_x * off_y).sum(1) / (weight * off_x**2).sum(1)).clamp(min=0)
        c0 = mean_y - c1 * mean_x
        c1 = torch.where(c0 < 0, (weight * x * y).sum(1) / (weight * x * x).sum(1), c1)
        c0 = c0.clamp(min=0)
        weight = 1 / (c0[:, None] + c1[:, None] * x).clamp(min=1e-12)
    return c0, c1
