"""Fields of scores that a figure can lay out: length, variant, settings of the task, settings in which runs differ."""

import re
from collections.abc import Sequence

from longreach.errors import BadInput
from longreach.evaluation import Score
from longreach.reports.curves import Group, group, headline_groups
from longreach.reports.explorer import swept
from longreach.reports.load import Result, variant_order

ONE_PASS = " (one pass)"
"""Stands behind the name of a variant whose one-pass score is drawn for want of a better one."""


def select(results: Sequence[Result], metric: str | None) -> list[Group]:
    """Return the curves of one metric; by default those of the headline."""
    if metric is None:
        found = [one for one in headline_groups(results) if one.metric != "next_token"]
        if not found:
            raise BadInput("there is no exact match to draw, only losses of texts: see --figure losses")
        return found
    found = group(results, metric)
    if not found:
        known = list(dict.fromkeys(score.metric for result in results for score in result.scores))
        raise BadInput(f"there is no metric {metric!r}; there are {', '.join(known) or 'none'}")
    return found


class Fields:
    """The fields of results."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.variants = variant_order(results)
        self.of_task = list(dict.fromkeys(n for result in results for score in result.scores for n in score.overrides))
        """Settings of the task that evaluation changed."""
        self.of_runs: dict[str, dict[str, list[str]]] = {}
        """Settings in which runs differ: the values of each variant."""
        for field, values in swept(results).items():
            found = self.of_runs.setdefault(field, {})
            for result, value in zip(results, values, strict=True):
                found.setdefault(result.variant, []).append(value or "-")

    def check(self, name: str) -> None:
        """Raise BadInput if there is no field of this name."""
        known = ["length", "variant", *self.of_task, *self.of_runs]
        if name not in known:
            raise BadInput(f"there is no field {name!r}; there are {', '.join(known)}")

    def value(self, one: Group, score: Score, field: str) -> str:
        """Return the value of a field for a score of a curve; `-` if it has none."""
        if field == "length":
            return str(score.length)
        if field == "variant":
            return one.variant
        if field in self.of_task:
            return score.overrides.get(field, "-")
        values = dict.fromkeys(self.of_runs[field][one.variant.removesuffix(ONE_PASS)])
        if len(values) > 1:
            raise BadInput(f"{one.variant} has several values of {field}: {', '.join(values)}")
        return next(iter(values))

    def order(self, field: str, values: Sequence[str]) -> list[str]:
        """Return different values in the order of the recipe, or as numbers."""
        if field == "variant":
            return sorted(dict.fromkeys(values), key=lambda value: self.variants.index(value.removesuffix(ONE_PASS)))
        return sorted(dict.fromkeys(values), key=_natural)


def named(field: str, value: str) -> str:
    """Return the title of a panel."""
    return value if field == "variant" else f"{field} = {value}"


def _natural(text: str) -> list[tuple[float, str]]:
    """Sort 8 before 12, and 1e-4 before 0.01."""
    try:
        return [(float(text), "")]
    except ValueError:
        return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]
