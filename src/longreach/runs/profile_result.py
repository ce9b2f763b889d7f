"""The result of a profile."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from longreach.runs.operators import Operators, first_rows

_ROWS = 25
"""Operators that a file names one by one."""


@dataclass(frozen=True)
class PhaseTime:
    """The time of a phase, without the phases inside it."""

    name: str
    seconds: float
    share: float
    """Of the whole command."""


@dataclass(frozen=True)
class TestTime:
    """The time of a test at one length; on text, of all contexts."""

    length: int | None
    one_pass: float
    """Seconds; drawing and counting included."""
    free_running: float


@dataclass(frozen=True)
class TrainingSpeed:
    """The speed of a training, without its first step and the steps under the profiler."""

    models: int
    first: int
    """The number of the first step."""
    steps: int
    """All that were taken."""
    timed: int
    """Steps that the other figures are about."""
    median_milliseconds: float | None
    """None where no step was timed."""
    slowest_milliseconds: float | None
    steps_per_second: float | None
    """Timed steps by the sum of their times: what happens between steps, such as validation, is not counted."""
    samples_per_second: float | None
    tokens_per_second: float | None
    """Tokens read, of all models; padding is not counted."""
    waiting_share: float | None
    """Share of the timed steps and those under the profiler that waited for batches; None where the device draws."""
    operators: Operators | None
    """None where too few steps were taken."""

    @property
    def busy_share(self) -> float | None:
        """Share of a median step in which the GPU computes; on a CPU, share of the traced steps spent in operators."""
        found = self.operators
        if found is None or not found.milliseconds:
            return None
        if found.kind == "operators":
            return found.busy_milliseconds / found.milliseconds
        return found.busy_milliseconds / self.median_milliseconds if self.median_milliseconds else None

    def to_json(self) -> dict[str, Any]:
        found = self.operators
        if found is not None:
            found = replace(found, rows=tuple(first_rows(found.rows, _ROWS)))
        return {**asdict(replace(self, operators=found)), "busy_share": self.busy_share}


@dataclass(frozen=True)
class Section:
    """Runs that were trained as one."""

    runs: tuple[str, ...]
    phases: tuple[PhaseTime, ...]
    training: tuple[TrainingSpeed, ...]
    """One; none if nothing was left to train, several if the runs of a stack had stopped at different steps."""
    tests: tuple[TestTime, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "training": [one.to_json() for one in self.training]}


@dataclass(frozen=True)
class ProfileResult:
    """Where the time of a command went."""

    seconds: float
    """From the start of the process until the report was written."""
    since: str
    """How the start of the process is known."""
    seconds_to_first_step: float | None
    """From the start of the process to the end of the first training step; None if none was taken."""
    phases: tuple[PhaseTime, ...]
    """They add up to `seconds`."""
    sections: tuple[Section, ...]

    def to_json(self, facts: dict[str, Any]) -> dict[str, Any]:
        return {**facts, **asdict(self), "sections": [section.to_json() for section in self.sections]}


def phase_times(seconds: Sequence[tuple[str, float]], total: float, order: Sequence[str]) -> tuple[PhaseTime, ...]:
    """Sum seconds by name; phases come in the given order, and others after them."""
    sums: dict[str, float] = dict.fromkeys(order, 0.0)
    for name, own in seconds:
        sums[name] = sums.get(name, 0.0) + own
    return tuple(PhaseTime(name, own, own / total if total else 0.0) for name, own in sums.items() if own > 0)
