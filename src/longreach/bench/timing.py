"""Taking turns: what is compared runs in one process, round after round, so that a busy machine slows all alike."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

_WARM_UP = 3
"""Calls before the clock runs, in which things are compiled, recorded and allocated."""
_WINDOW = 0.25
"""Seconds that one look at the clock should span: quicker calls are repeated within a round."""


@dataclass(frozen=True)
class Effort:
    """How much measuring is worth."""

    rounds: int = 10
    """Rounds, in each of which every side is measured once."""
    seconds: float = 60.0
    """No round begins after so many; there is always one.  Warming up is not counted."""


@dataclass(frozen=True)
class Side:
    """One way to do the work."""

    name: str
    call: Callable[[], object]
    tokens: int
    """How many a call handles."""


@dataclass(frozen=True)
class Timing:
    """What a side took."""

    side: str
    tokens: int
    seconds: tuple[float, ...]
    """Of one call, in each round."""

    @property
    def typical(self) -> float:
        return median(self.seconds)

    @property
    def rate(self) -> float:
        """Tokens a second, in the median round."""
        return self.tokens / self.typical

    @property
    def slowest(self) -> float:
        return self.tokens / max(self.seconds)

    @property
    def fastest(self) -> float:
        return self.tokens / min(self.seconds)


def take_turns(
    sides: Sequence[Side],
    effort: Effort,
    wait: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: int = _WARM_UP,
    window: float = _WINDOW,
) -> list[Timing]:
    """Time every side in rounds: A B A B ...  `wait` returns when the device has done all that was asked of it."""

    def timed(side: Side, calls: int) -> float:
        wait()
        start = clock()
        for _ in range(calls):
            side.call()
        wait()
        return (clock() - start) / calls

    calls = []
    for side in sides:
        for _ in range(warm_up):
            side.call()
        calls.append(max(1, math.ceil(window / max(timed(side, 1), 1e-9))) if warm_up else 1)
    seconds: list[list[float]] = [[] for _ in sides]
    begun = clock()
    for number in range(effort.rounds):
        if number and clock() - begun >= effort.seconds:
            break
        for side, count, found in zip(sides, calls, seconds, strict=True):
            found.append(timed(side, count))
    return [Timing(side.name, side.tokens, tuple(found)) for side, found in zip(sides, seconds, strict=True)]
