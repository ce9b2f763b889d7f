"""From results to curves: one per variant, setting and seed."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from longreach.errors import BadInput
from longreach.evaluation import Score, reach_at
from longreach.reports.load import Result

THRESHOLDS = (0.9, 0.99)
HEADLINE = ("token_em_free", "token_id_em_tf", "token_em_tf", "next_token")
"""Free-running comes first; a one-pass score stands in, under its own name, where nothing was generated.  With
predicted IDs it must count them: tokens alone, given true IDs, would say what an oracle could do.  Text has no exact
answers."""


@dataclass(frozen=True)
class Curve:
    """One seed's scores by length, under one setting of the task."""

    variant: str
    setting: str
    seed: int
    metric: str
    scores: list[Score]

    @property
    def rates(self) -> dict[int, float]:
        return {score.length: score.rate for score in self.scores}

    def reach(self, at_least: float) -> int:
        return reach_at(self.scores, at_least)


def curves(result: Result, metric: str) -> list[Curve]:
    """Return the curves of a result under one metric, one for each setting of the task."""
    settings = sorted({setting_of(score) for score in result.scores}, key=_numeric)
    made = [
        Curve(
            result.variant,
            setting,
            result.seed,
            metric,
            [score for score in result.scores if score.metric == metric and setting_of(score) == setting],
        )
        for setting in settings
    ]
    return [curve for curve in made if curve.scores]


@dataclass(frozen=True)
class Group:
    """The seeds of one variant under one setting."""

    variant: str
    setting: str
    metric: str
    curves: list[Curve]
    trained_to: int | None
    """Longest training length, if it is known."""

    def middle(self) -> dict[int, float]:
        """Median over seeds at each length."""
        return {length: median(rates) for length, rates in self._by_length().items()}

    def worst(self) -> dict[int, float]:
        return {length: min(rates) for length, rates in self._by_length().items()}

    def reaches(self, at_least: float) -> list[int]:
        return [curve.reach(at_least) for curve in self.curves]

    def _by_length(self) -> dict[int, list[float]]:
        lengths = sorted({length for curve in self.curves for length in curve.rates})
        return {n: [curve.rates[n] for curve in self.curves if n in curve.rates] for n in lengths}


def group(results: Sequence[Result], metric: str) -> list[Group]:
    """Variants in the order in which they come, settings in theirs; every seed counts."""
    found: dict[tuple[str, str], list[Curve]] = {}
    trained_to = {}
    for result in results:
        for curve in curves(result, metric):
            found.setdefault((curve.variant, curve.setting), []).append(curve)
            trained_to[curve.variant] = result.trained_to
    return [
        Group(variant, setting, metric, curves, trained_to[variant]) for (variant, setting), curves in found.items()
    ]


def headline_groups(results: Sequence[Result]) -> list[Group]:
    """Return the curves of the best metric that any result has.

    Results without it stand in with their best, and their names say so.  Results of losses alone have no curve.
    Raises `BadInput` if no result has exact match or losses.
    """
    every = [(r, next((m for m in HEADLINE if any(s.metric == m for s in r.scores)), None)) for r in results]
    scored = [(result, metric) for result, metric in every if metric is not None]
    if not scored:
        if any(result.losses for result in results):
            return []
        raise BadInput(f"{results[0].source} has neither exact match nor losses to show")
    first = min((metric for _, metric in scored), key=HEADLINE.index)
    named = [
        (result if metric == first else replace(result, variant=f"{result.variant} (one pass)"), metric)
        for result, metric in scored
    ]
    groups = []
    for variant in dict.fromkeys(result.variant for result, _ in named):
        of_variant = [(result, metric) for result, metric in named if result.variant == variant]
        groups += group([result for result, _ in of_variant], of_variant[0][1])
    # the first group's metric names the axis
    return sorted(groups, key=lambda g: HEADLINE.index(g.metric)) if groups[0].metric != first else groups


DRAWN = 24
"""Variants that a report draws and describes one by one.  Its tables of reach and of scores have all of them."""


def drawn(results: Sequence[Result], shows: Callable[[Result], bool]) -> tuple[list[Result], str]:
    """Return the results without those variants of a figure that come after the first `DRAWN`, and a note on them.

    Results that the figure does not show stay: they keep the colours of the others.
    """
    variants = list(dict.fromkeys(result.variant for result in results if shows(result)))
    if len(variants) <= DRAWN:
        return list(results), ""
    beyond = set(variants[DRAWN:])
    note = f"the first {DRAWN} of {len(variants)} variants; the table of reach and scores.csv have all"
    return [result for result in results if result.variant not in beyond], note


def has_exact_match(result: Result) -> bool:
    """Return whether a result has a score that a figure of reach draws."""
    return any(score.metric in HEADLINE and score.metric != "next_token" for score in result.scores)


def has_losses(result: Result) -> bool:
    """Return whether a result has losses of texts."""
    return bool(result.losses)


def setting_of(score: Score) -> str:
    return ", ".join(f"{name}={value}" for name, value in score.overrides.items())


def _numeric(setting: str) -> list[tuple[int, str]]:
    """Sort k=8 before k=12."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", setting)]
