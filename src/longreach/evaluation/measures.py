"""Records of why a model fails with length: attention on the true dependencies, and margins of its choices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor

from longreach.config import Natural, Positive, Seed, Settings, Share, build
from longreach.errors import BadInput

MeasureName = Literal["mass", "margin", "token_margin"]
MEASURES: tuple[MeasureName, ...] = get_args(MeasureName)
SCHEMA = 1
"""Version of measures.json."""
LARGEST_MARGIN = 50.0
"""Margins are clipped to this many nats, which leaves an ID out of reach a number."""
_Z = 1.96


@dataclass(frozen=True, kw_only=True)
class Measure(Settings):
    """One measure at one length, under one setting of the task, for one head of attention or one level of IDs.

    A sample's value is the mean over its steps.
    """

    measure: MeasureName
    length: Positive
    overrides: dict[str, str] = field(default_factory=dict)
    """Task fields that evaluation changed (k, hops, ...)."""
    ids: str = "plain"
    """IDs of the test: see `EvalConfig.test_ids`."""
    layer: Natural | None = None
    """Layer of the attention head, from 0; looped layers are counted each time."""
    head: Natural | None = None
    """Head of the layer, from 0."""
    dependency: Positive | None = None
    """Number of the dependency, from 1 in the order of places; None for the sum over all."""
    level: str | None = None
    """Level of the IDs whose margin this is."""
    mean: float
    """Mean over samples."""
    deviation: float | None = None
    """Standard deviation over samples; None for one sample."""
    lowest: float
    """Mean over samples of the lowest step."""
    samples: Positive
    """Samples with at least one step that counts."""
    steps: Positive
    """Steps that count, of all samples."""
    even: Share | None = None
    """Mass of attention that is even over all tokens read."""
    low_quantile: float | None = None
    """The margin that 1% of the steps stay at or below."""
    not_ahead: Natural | None = None
    """Steps whose margin is at most 0."""
    test_seed: Seed
    """Seed of the test samples."""
    device: str
    commit: str
    date: str

    def __post_init__(self) -> None:
        is_mass = self.measure == "mass"
        ends = (0.0, 1.0) if is_mass else (-LARGEST_MARGIN, LARGEST_MARGIN)
        for value in (self.mean, self.lowest, self.low_quantile):
            if value is not None and not ends[0] <= value <= ends[1] + 1e-3:
                raise ValueError(f"a {self.measure} must be in {ends[0]:g}..{ends[1]:g}, got {value}")
        if self.deviation is not None and self.deviation < 0:
            raise ValueError(f"a deviation must not be negative, got {self.deviation}")
        if self.samples > self.steps or (self.not_ahead or 0) > self.steps:
            raise ValueError(f"{self.samples} samples, {self.not_ahead} not ahead, of {self.steps} steps")
        if is_mass != (self.layer is not None and self.head is not None and self.even is not None):
            raise ValueError(f"a {self.measure} {'lacks' if is_mass else 'has'} a layer, a head or even attention")
        if not is_mass and (self.low_quantile is None or self.not_ahead is None):
            raise ValueError(f"a {self.measure} lacks its quantile or its steps that are not ahead")

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the cell: a measure replaces an earlier one with the same key."""
        parts = (self.measure, self.level, self.layer, self.head, self.dependency)
        return (*parts, self.length, tuple(sorted(self.overrides.items())), self.ids)

    @property
    def setting(self) -> str:
        """Return the overrides as text."""
        return ", ".join(f"{name}={value}" for name, value in self.overrides.items())

    def to_plain(self) -> dict[str, Any]:
        """Return the fields that apply."""
        return _given(asdict(self))

    def interval(self) -> tuple[float, float] | None:
        """Return the 95% interval of the mean over samples, by the normal approximation; None for one sample."""
        if self.deviation is None:
            return None
        half = _Z * self.deviation / math.sqrt(self.samples)
        low, high = self.mean - half, self.mean + half
        return (max(0.0, low), min(1.0, high)) if self.measure == "mass" else (low, high)


@dataclass(frozen=True, kw_only=True)
class ChosenHead(Settings):
    """The head with the most attention on the dependencies at the longest training length."""

    dependency: Positive | None = None
    """Number of the dependency; None for the sum over all."""
    layer: Natural
    head: Natural
    mean: Share
    """Its attention there."""
    length: Positive
    """The longest training length."""
    samples: Positive
    seed: Seed
    """Seed of the samples, which is not the test's."""


@dataclass(frozen=True)
class Measures:
    """All measures of one trained model."""

    step: int
    """Training step of the checkpoint that was measured."""
    chosen: Sequence[ChosenHead] = ()
    """The best head for the sum over all dependencies and, where steps have several, for each of them."""
    entries: Sequence[Measure] = ()

    def merge(self, new: "Measures") -> "Measures":
        """Return these measures with new ones on top; measures of another checkpoint are dropped."""
        if new.step != self.step:
            return new
        entries = {entry.key: entry for entry in (*self.entries, *new.entries)}
        return Measures(self.step, new.chosen or self.chosen, list(entries.values()))


def measures_to_json(measures: Measures) -> dict[str, Any]:
    """Return the content of measures.json; values that do not apply are left out."""
    return {
        "schema": SCHEMA,
        "step": measures.step,
        "chosen": [_given(asdict(head)) for head in measures.chosen],
        "measures": [entry.to_plain() for entry in measures.entries],
    }


def _given(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def measures_from_json(content: Any) -> Measures:
    """Return the measures of a file; raise ValueError for one that no measurement writes."""
    if not isinstance(content, Mapping) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, Mapping) else content
        raise ValueError(f"expected measures of schema {SCHEMA}, got {found!r:.40}")
    if set(content) != {"schema", "step", "chosen", "measures"}:
        raise ValueError(f"expected schema, step, chosen and measures, got {', '.join(map(str, content)):.80}")
    step = content["step"]
    if type(step) is not int or step < 0:
        raise ValueError(f"step is no number of a step: {step!r:.40}")
    rows = {}
    for name in ("chosen", "measures"):
        rows[name] = content[name]
        if not isinstance(rows[name], list):
            raise ValueError(f"{name} is not a list: {rows[name]!r:.40}")
    chosen = [build(ChosenHead, row, f"chosen[{number}]") for number, row in enumerate(rows["chosen"])]
    entries = [build(Measure, row, f"measures[{number}]") for number, row in enumerate(rows["measures"])]
    if len({entry.key for entry in entries}) < len(entries):
        raise ValueError("a measure is there twice")
    return Measures(step, chosen, entries)


def read_names(measure: str | Sequence[str]) -> tuple[MeasureName, ...]:
    """Return the measures that a list or a text such as `mass,margin` names; raise BadInput for others."""
    asked = measure.split(",") if isinstance(measure, str) else list(measure)
    names = [name.strip() if isinstance(name, str) else name for name in asked]
    for name in names:
        if name not in MEASURES:
            raise BadInput(f"unknown measure {name!r:.40}; known: {', '.join(MEASURES)}")
    if not names:
        raise BadInput(f"no measure is named; known: {', '.join(MEASURES)}")
    return tuple(name for name in MEASURES if name in names)


def refuse_overflow(values: Float[Tensor, "*n"]) -> None:
    """Raise BadInput if a measured value is not a number."""
    if bool(values.isnan().any()):
        raise BadInput("the scores of the model overflow: nothing can be measured")
