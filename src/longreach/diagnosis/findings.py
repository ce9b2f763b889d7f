"""What a diagnosis says."""

from dataclasses import dataclass, field

from longreach.diagnosis.coverage import SchemeCoverage
from longreach.diagnosis.estimates import Estimate
from longreach.diagnosis.needs import Needs

OWN = "the model's own"
"""The scheme that a model was trained with."""
TOLERATED = 0.05
"""A length counts as covered if at most this share of its samples needs what training never shows."""
STRAY = 0.05
"""The share of attention that may go astray before an answer is in danger."""


@dataclass(frozen=True)
class NeedsSummary:
    """How many tokens an answer token needs, and where."""

    k: Estimate
    """Median number."""
    span: Estimate
    """Distance between the first and the last of them, which nine in ten do not exceed."""
    distance: Estimate
    """How far back the farthest is, which nine in ten do not exceed."""

    @classmethod
    def of(cls, needs: Needs) -> "NeedsSummary":
        return cls(needs.k(), needs.span(), needs.distance())


@dataclass(frozen=True)
class SchemeReport:
    """One scheme of IDs."""

    scheme: str
    by_length: dict[int, SchemeCoverage]
    covered_to: int
    """The longest length up to which training covers what is needed; 0 where it does not cover the first asked."""

    @property
    def at_target(self) -> SchemeCoverage:
        return self.by_length[max(self.by_length)]


@dataclass(frozen=True)
class Forecast:
    """What a trained model will do at a length, if its errors go on growing as they do."""

    loss: Estimate
    """Mean over answer tokens of 1 - p(right)."""
    exact: Estimate
    """Exact match."""


@dataclass(frozen=True)
class Diagnosis:
    """Everything that `longreach diagnose` tells."""

    source: str
    trained: str
    """Training lengths."""
    target: int
    needs_from: str
    """How it is known which tokens are needed."""
    short: NeedsSummary
    """Needs at the lengths from which coverage is asked."""
    long: NeedsSummary
    """Needs at the length for which it is asked."""
    short_to: int
    long_from: int
    """The first of the lengths that `long` is about: it stands for several where what is needed was found out."""
    long_at: int
    coupling: str
    """Who supplies the task's coupled IDs during generation, if there are any."""
    schemes: list[SchemeReport]
    """Best first."""
    margins: tuple[float, float]
    """How far the score of a needed token must be above all others for softmax to stray by at most STRAY, at the
    longest training length and at the target."""
    read: NeedsSummary | None = None
    """What a model reacts to at training lengths, where that is known beside what is needed."""
    accuracy: Estimate | None = None
    """Exact match of a model at training lengths, with the true prefix given."""
    forecast: dict[int, Forecast] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
