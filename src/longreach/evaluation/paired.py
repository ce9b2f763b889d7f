"""Paired differences of two variants over seeds: is A better than B?"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from longreach.errors import BadInput
from longreach.evaluation.scores import Score

Key = tuple[int, tuple[tuple[str, str], ...]]
"""Length and overrides."""


@dataclass(frozen=True)
class PairedDifference:
    """The mean over seeds of one variant's rate minus the other's, at one length and setting of the task."""

    length: int
    overrides: Mapping[str, str]
    seeds: int
    """Seeds that both variants have."""
    first: float
    """Mean rate of the first variant over these seeds."""
    second: float
    difference: float
    low: float
    high: float
    """95% interval of the difference."""
    first_ahead: int
    """Seeds at which the first variant has the higher rate."""
    second_ahead: int

    @property
    def verdict(self) -> str:
        """Return `first`, `second`, or `open` if the interval contains 0."""
        return "first" if self.low > 0 else "second" if self.high < 0 else "open"


def compare_scores(first: Iterable[Score], second: Iterable[Score]) -> list[PairedDifference]:
    """Return the paired difference of each cell that both variants have with at least two equal seeds.

    The interval is Student's, over seeds.  Where seeds differ less than their finite samples do by chance, the variance
    is that of the samples: equal rates of 1,024 answers do not make an interval a point.  Raises BadInput if a seed
    has two scores in a cell.
    """
    cells, others = _by_cell(first), _by_cell(second)
    found = []
    for key in sorted(cells.keys() & others.keys()):
        seeds = sorted(cells[key].keys() & others[key].keys())
        if len(seeds) > 1:
            found.append(_difference(key, [(cells[key][seed], others[key][seed]) for seed in seeds]))
    return found


def _by_cell(scores: Iterable[Score]) -> dict[Key, dict[int, Score]]:
    found: dict[Key, dict[int, Score]] = {}
    for score in scores:
        cell = found.setdefault((score.length, tuple(sorted(score.overrides.items()))), {})
        if score.seed in cell:
            raise BadInput(f"seed {score.seed} has two scores at length {score.length}: compare fewer runs")
        cell[score.seed] = score
    return found


def _difference(key: Key, pairs: list[tuple[Score, Score]]) -> PairedDifference:
    differences = [one.rate - other.rate for one, other in pairs]
    of_samples = fmean(_sampling_variance(one) + _sampling_variance(other) for one, other in pairs)
    spread = math.sqrt(max(variance(differences), of_samples) / len(pairs))
    half, mean = student_quantile(len(pairs) - 1) * spread, fmean(differences)
    return PairedDifference(
        length=key[0],
        overrides=dict(key[1]),
        seeds=len(pairs),
        first=fmean(one.rate for one, _ in pairs),
        second=fmean(other.rate for _, other in pairs),
        difference=mean,
        low=max(-1.0, mean - half),
        high=min(1.0, mean + half),
        first_ahead=sum(difference > 0 for difference in differences),
        second_ahead=sum(difference < 0 for difference in differences),
    )


def _sampling_variance(score: Score) -> float:
    """Return the variance of a rate; two answers of each kind are added, so that it is never 0 (Agresti and Coull)."""
    rate = (score.hits + 2) / (score.samples + 4)
    return rate * (1 - rate) / (score.samples + 4)


_FIRST_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764)


def student_quantile(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t; from 5 degrees of freedom on Fisher's expansion, exact to .2%."""
    if freedom <= len(_FIRST_QUANTILES):
        return _FIRST_QUANTILES[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))
