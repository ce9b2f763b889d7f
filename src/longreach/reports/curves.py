"""From run folders to curves: one per variant, setting and seed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from longreach.errors import BadInput
from longreach.evaluation import Card, Loss, Score, reach
from longreach.runs import RunFolder, RunInfo, find_runs

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
        return reach(self.scores, at_least)


@dataclass(frozen=True)
class Result:
    """Everything a report shows of one run."""

    folder: RunFolder
    info: RunInfo
    scores: list[Score]
    card: Card
    variant: str
    """What its curves are called."""
    losses: list[Loss] = field(default_factory=list)
    """By length, of a run on text."""

    @property
    def trained_to(self) -> int:
        """The longest training length."""
        return int(self.card.trained_lengths.split("..")[1])

    def curves(self, metric: str) -> list[Curve]:
        settings = sorted({_setting(score) for score in self.scores}, key=_numeric)
        made = [
            Curve(
                self.variant,
                setting,
                self.info.seed,
                metric,
                [score for score in self.scores if score.metric == metric and _setting(score) == setting],
            )
            for setting in settings
        ]
        return [curve for curve in made if curve.scores]


def load_results(paths: Iterable[Path]) -> tuple[list[Result], list[str]]:
    """All finished runs below the paths, and a line for each that is not finished."""
    results, unfinished = [], []
    seen = set()
    for path in paths:
        for folder in find_runs(path):
            if folder.path.resolve() in seen:
                continue
            seen.add(folder.path.resolve())
            if not folder.finished:
                unfinished.append(f"{folder.path} is not finished")
                continue
            info = folder.info()
            name = info.variant or info.recipe
            results.append(Result(folder, info, folder.scores(), folder.card(), name, folder.losses()))
    if not results:
        raise BadInput(f"no finished run in {', '.join(map(str, paths))}")
    return _tell_apart(results), unfinished


def _tell_apart(results: list[Result]) -> list[Result]:
    """Runs of one name are seeds of one curve only if their settings agree; else their folders' names join in.

    The section `execution` does not count.
    """
    settings: dict[str, set[str]] = {}
    for result in results:
        settings.setdefault(result.variant, set()).add(result.folder.compared_settings())
    return [
        replace(result, variant=_folder_name(result)) if len(settings[result.variant]) > 1 else result
        for result in results
    ]


def _folder_name(result: Result) -> str:
    """`small/aligned` for runs/small/aligned/seed-0."""
    parts = result.folder.path.resolve().parent.parts
    return "/".join(parts[-2:] if result.info.variant else parts[-1:])


@dataclass(frozen=True)
class Group:
    """The seeds of one variant under one setting."""

    variant: str
    setting: str
    metric: str
    curves: list[Curve]
    trained_to: int

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


def group(results: list[Result], metric: str) -> list[Group]:
    """Variants in the order in which they come, settings in theirs; every seed counts."""
    found: dict[tuple[str, str], list[Curve]] = {}
    trained_to = {}
    for result in results:
        for curve in result.curves(metric):
            found.setdefault((curve.variant, curve.setting), []).append(curve)
            trained_to[curve.variant] = result.trained_to
    return [
        Group(variant, setting, metric, curves, trained_to[variant]) for (variant, setting), curves in found.items()
    ]


def headline_groups(results: list[Result]) -> list[Group]:
    """The best metric that any run has; runs without it stand in with their best, and say so in their names."""
    best = [next((m for m in HEADLINE if any(s.metric == m for s in r.scores)), None) for r in results]
    found = [metric for metric in HEADLINE if metric in best]
    for result, metric in zip(results, best, strict=True):
        if metric is None:
            raise BadInput(f"{result.folder.path / 'scores.json'} has neither exact match nor losses to show")
    named = [
        result if metric == found[0] else replace(result, variant=f"{result.variant} (one pass)")
        for result, metric in zip(results, best, strict=True)
    ]
    groups = []
    for variant in dict.fromkeys(result.variant for result in named):
        of_variant = [(r, m) for r, m in zip(named, best, strict=True) if r.variant == variant]
        groups += group([r for r, _ in of_variant], str(of_variant[0][1]))
    # the first group's metric names the axis
    return sorted(groups, key=lambda g: HEADLINE.index(g.metric)) if groups[0].metric != found[0] else groups


DRAWN = 24
"""Variants that a report draws and describes one by one.  Its tables of reach and of scores have all of them."""


def drawn(results: list[Result]) -> tuple[list[Result], str]:
    """Return the results of the first `DRAWN` variants, and a note if there are more."""
    variants = list(dict.fromkeys(result.variant for result in results))
    if len(variants) <= DRAWN:
        return results, ""
    first = set(variants[:DRAWN])
    note = f"the first {DRAWN} of {len(variants)} variants; the table of reach and scores.csv have all"
    return [result for result in results if result.variant in first], note


def _setting(score: Score) -> str:
    return ", ".join(f"{name}={value}" for name, value in score.overrides.items())


def _numeric(setting: str) -> list[tuple[int, str]]:
    """Sort k=8 before k=12."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", setting)]
