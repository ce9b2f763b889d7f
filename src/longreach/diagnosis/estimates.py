"""Estimates: a number is never told without an interval."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.evaluation import wilson
from longreach.seeding import stream

_REPEATS = 200


class Estimate(NamedTuple):
    """A value and the limits of its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.value)} [{_short(self.low)}, {_short(self.high)}]"


def share(hits: int, samples: int) -> Estimate:
    """A proportion, with Wilson's interval: not a point where nothing or everything was hit."""
    return Estimate(hits / samples, *wilson(hits, samples))


def over_samples(
    values: Float[Tensor, "n"], sample: Int[Tensor, "n"], statistic: Callable[[Tensor], Tensor], seed: int = 0
) -> Estimate:
    """A statistic of values of which each sample has several: the interval draws whole samples again, since those
    of one sample are alike."""
    order = sample.argsort(stable=True)
    rows = torch.unique_consecutive(sample[order], return_counts=True)[1].tolist()
    grouped = torch.split(values[order], rows)
    drawn = stream(seed, "diagnose bootstrap", torch.arange(_REPEATS)).below("rows", len(grouped), len(grouped))
    again = torch.stack([statistic(torch.cat([grouped[row] for row in rows])) for rows in drawn.tolist()])
    low, high = again.double().quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Estimate(float(statistic(values)), low, high)


class Tally(NamedTuple):
    """How often something was counted, over samples that are independent of each other."""

    hits: int
    squares: int
    """Sum over samples of their counts squared: those of one sample come together."""
    samples: int


def rate_ratio(asked: Tally, over: int, base: Tally, base_over: int) -> Estimate:
    """How much larger one rate is than another; the interval is that of a log ratio."""
    ratio = asked.hits / over / (base.hits / base_over)
    variance = sum(max(0.0, tally.squares / tally.hits**2 - 1 / tally.samples) for tally in (asked, base))
    spread = math.exp(1.96 * variance**0.5)
    return Estimate(ratio, ratio / spread, ratio * spread)


def _short(value: float) -> str:
    if value == round(value) and abs(value) < 1e6:
        return str(round(value))
    return f"{value:.3g}"
