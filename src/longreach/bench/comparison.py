"""Ours beside theirs: rates, ratios, and how much of the hardware's peak is used."""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Literal

from longreach.bench.machine import Peak
from longreach.bench.timing import Timing


@dataclass(frozen=True)
class ComparisonRow:
    """One side of a comparison."""

    side: str
    tokens_per_second: float
    """In the median round."""
    slowest: float
    fastest: float
    seconds: float
    """Of one call, in the median round."""
    rounds: int
    ratio: float | None
    """How many times as fast as this side ours is: the median over rounds.  None for ours."""
    ratio_lowest: float | None
    ratio_highest: float | None
    floor_share: float
    """Operations that the work needs, for each second it took, as a share of the peak."""


@dataclass(frozen=True)
class SpeedComparison:
    """Sides that did the same work in turns, ours first."""

    name: str
    timings: tuple[Timing, ...]
    flops_per_token: float
    """What the work needs, whatever a side spends on it."""
    peak: Peak
    notes: tuple[str, ...] = ()
    unit: Literal["tokens/s", "seconds"] = "tokens/s"
    """In which its aim is stated."""

    @property
    def rows(self) -> list[ComparisonRow]:
        ours = self.timings[0]
        return [self._row(ours, None), *(self._row(theirs, ours) for theirs in self.timings[1:])]

    def _row(self, timing: Timing, ours: Timing | None) -> ComparisonRow:
        ratios = _ratios(ours, timing) if ours is not None else None
        return ComparisonRow(
            side=timing.side,
            tokens_per_second=timing.rate,
            slowest=timing.slowest,
            fastest=timing.fastest,
            seconds=timing.typical,
            rounds=len(timing.seconds),
            ratio=median(ratios) if ratios else None,
            ratio_lowest=min(ratios) if ratios else None,
            ratio_highest=max(ratios) if ratios else None,
            floor_share=timing.rate * self.flops_per_token / self.peak.flops,
        )

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "flops_per_token": self.flops_per_token,
            "peak_flops": self.peak.flops,
            "peak": self.peak.how,
            "unit": self.unit,
            "notes": list(self.notes),
            "rows": [asdict(row) for row in self.rows],
        }


def _ratios(ours: Timing, theirs: Timing) -> list[float]:
    """How many times as fast ours was in each round: a round's two sides ran under the same conditions."""
    return [
        (ours.tokens / mine) / (theirs.tokens / other) for mine, other in zip(ours.seconds, theirs.seconds, strict=True)
    ]
