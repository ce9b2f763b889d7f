"""The time left over all runs of a command."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longreach.terminal.durations import duration

_MEASURED = 2.0
"""Seconds of training or testing after which their pace is known."""


@dataclass
class _Pace:
    seconds: float = 0.0
    units: float = 0.0
    enough: float = math.inf
    """Units after which the pace is known, however short they took."""

    def of(self, units: float) -> float | None:
        """Return the seconds of further units; None if too little was measured."""
        if not units:
            return 0.0
        known = self.units and (self.seconds >= _MEASURED or self.units >= self.enough)
        return units * self.seconds / self.units if known else None


class Whole:
    """Extrapolates the pace of training and of testing so far to all runs that are left.

    A unit of training is a step of one run, also in a stack; a unit of testing is the test of one run.
    """

    def __init__(
        self, stacks: Sequence[Sequence[int | None]] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`stacks` has the training steps that each run has left; None for a run that is finished."""
        self.stacks, self.clock = stacks, clock
        self.number = 0
        self._paces = {"train": _Pace(), "test": _Pace(enough=1.0)}
        self._now: _Phase | None = None
        self._tested = 0

    def begin(self, number: int) -> None:
        """Begin a stack."""
        self._end_phase()
        self.number, self._tested = number, 0

    @property
    def later(self) -> str:
        """Describe the runs after this stack."""
        after = sum(map(len, self.stacks[self.number + 1 :]))
        return f", and {after} more to do after it" if after else ""

    def begin_phase(self, title: str, total: int) -> None:
        """Begin the training of the stack, or the test of one of its runs; the phase before has ended."""
        self._end_phase()
        kind = title.split()[0]
        self._now = _Phase(kind, total, self.clock()) if self.stacks and kind in self._paces else None

    def _end_phase(self) -> None:
        if self._now is not None:
            self._paces[self._now.kind] = self._pace(self._now.kind)
            self._tested += self._now.kind == "test"
            self._now = None

    def note(self, done: int) -> None:
        """Record how far the phase is."""
        if self._now is not None:
            self._now.first = done if self._now.first is None else self._now.first
            self._now.done = done

    def describe(self) -> str:
        """Return `run 3 of 12, about 14 min left in all`; without the time while it is unknown, empty for one run."""
        runs = sum(map(len, self.stacks))
        if runs < 2:
            return ""
        first, own = sum(map(len, self.stacks[: self.number])) + 1, len(self.stacks[self.number])
        place = f"run {first} of {runs}" if own == 1 else f"runs {first} to {first + own - 1} of {runs}"
        training, testing = (self._pace(kind).of(self._left(kind)) for kind in ("train", "test"))
        if training is None or training + (testing or 0.0) == 0:
            return place
        about = duration(training) + " of training" if testing is None else duration(training + testing)
        return f"{place}, about {about} left in all"

    def _units(self, kind: str) -> float:
        """Return the units of the phase so far."""
        if self._now is None or self._now.kind != kind or self._now.first is None:
            return 0.0
        done = float(self._now.done - self._now.first)
        return done * len(self._todo(self.number)) if kind == "train" else done / max(1, self._now.total)

    def _pace(self, kind: str) -> _Pace:
        before = self._paces[kind]
        if self._now is None or self._now.kind != kind or self._now.first is None:
            return before
        seconds, units = self.clock() - self._now.started, self._units(kind)
        return _Pace(before.seconds + seconds, before.units + units, before.enough)

    def _left(self, kind: str) -> float:
        """Return the units that are left in all."""
        after = [self._todo(number) for number in range(self.number + 1, len(self.stacks))]
        own = self._todo(self.number)
        if kind == "test":
            return max(0.0, len(own) - self._tested - self._units(kind)) + sum(map(len, after))
        tests = self._now is not None and self._now.kind == "test"
        return (0.0 if tests else max(0.0, sum(own) - self._units(kind))) + sum(map(sum, after))

    def _todo(self, number: int) -> list[int]:
        return [steps for steps in self.stacks[number] if steps is not None]


@dataclass
class _Phase:
    kind: str
    total: int
    started: float
    first: int | None = None
    done: int = 0
