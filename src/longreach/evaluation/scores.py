"""Scores keep counts: hits out of samples, for one length and one setting of the task."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

_TENTH = re.compile(r"(?!first_error_tenth_).*|first_error_tenth_[0-9]", re.DOTALL)
"""Every name of a metric; those of places of errors end in a digit."""


@dataclass(frozen=True)
class Score:
    """One cell of a result."""

    seed: int
    length: int
    metric: str
    hits: int
    samples: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Task fields that evaluation changed (k, hops, ...)."""

    @property
    def rate(self) -> float:
        return self.hits / self.samples

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        return wilson(self.hits, self.samples, z)


def wilson(hits: int, samples: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a proportion, which is right near 0 and 1 too (z = 1.96: 95%)."""
    n, p = samples, hits / samples
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # at 0 and 1 rounding would push the rate out of its own interval
    return min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))


def to_json(scores: Iterable[Score]) -> list[dict[str, object]]:
    return [asdict(score) for score in scores]


def from_json(rows: Iterable[Mapping[str, object]]) -> list[Score]:
    """Return the scores of a file; raise ValueError for counts or names that no test writes."""
    if not isinstance(rows, list):
        raise ValueError(f"expected a list of scores, got {rows!r:.40}")
    scores = [Score(**row) for row in rows]
    for number, score in enumerate(scores):
        counts = (score.seed, score.length, score.hits, score.samples)
        if any(type(count) is not int for count in counts):
            raise ValueError(f"score {number} has a count that is not a whole number: {counts}")
        if not 0 <= score.hits <= score.samples or score.samples < 1 or score.length < 1:
            raise ValueError(f"score {number} has {score.hits} hits of {score.samples} samples at {score.length}")
        if type(score.metric) is not str or not _TENTH.fullmatch(score.metric):
            raise ValueError(f"score {number} has an unknown metric {score.metric!r:.40}")
        overrides = score.overrides
        if not isinstance(overrides, dict) or not all(isinstance(value, str) for value in overrides.values()):
            raise ValueError(f"score {number} has overrides that are not text: {overrides!r:.40}")
    return scores


def to_csv(scores: Iterable[Score], labels: Iterable[Mapping[str, str]] | None = None) -> str:
    """One line per cell; every overridden field is a column of its own.  `labels`, one mapping for each score, are
    columns in front."""
    scores = list(scores)
    marks = list(labels) if labels is not None else [{}] * len(scores)
    axes = sorted({name for score in scores for name in score.overrides})
    counts = ["metric", "hits", "samples", "rate", "low", "high"]
    out = io.StringIO()
    writer = csv.DictWriter(out, [*(marks[0] if marks else {}), "seed", "length", *axes, *counts], lineterminator="\n")
    writer.writeheader()
    for mark, score in zip(marks, scores, strict=True):
        row = {name: value for name, value in asdict(score).items() if name != "overrides"}
        low, high = score.interval()
        rates = {"rate": f"{score.rate:.6g}", "low": f"{low:.6g}", "high": f"{high:.6g}"}
        writer.writerow({**mark, **row, **score.overrides, **rates})
    return out.getvalue()
