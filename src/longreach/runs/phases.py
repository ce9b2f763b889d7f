"""The time of a command, partitioned into phases."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

OTHER = "other"
"""The phase of everything that no phase covers."""


class Phase(NamedTuple):
    """A part of the time of a command."""

    name: str
    section: int | None = None
    """The number of the stack of runs that it belongs to; None for the whole command."""
    length: int | None = None
    """The length that is tested."""


class Phases:
    """Measures phases that add up to the time since `begun`: at every moment exactly one of them is running."""

    def __init__(self, begun: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock, self.begun, self.at = clock, begun, begun
        self.wait: Callable[[], None] = lambda: None
        """Returns when the device has done all its work, so that no phase pays for the one before."""
        self.seconds: dict[Phase, float] = {}
        self.running = Phase(OTHER)
        self.section: int | None = None
        """The section of the phases that begin now."""
        self.switches = 0

    def switch(self, phase: Phase) -> None:
        """End the running phase and begin another one."""
        self.wait()
        now = self.clock()
        self.seconds[self.running] = self.seconds.get(self.running, 0.0) + now - self.at
        self.at, self.running = now, phase
        self.switches += 1

    def begin(self, name: str, length: int | None = None) -> None:
        """Begin a phase of the current section."""
        self.switch(Phase(name, self.section, length))

    @contextmanager
    def phase(self, name: str, length: int | None = None) -> Iterator[None]:
        """Measure a block; the phase around it goes on afterwards."""
        before = self.running
        self.begin(name, length)
        try:
            yield
        finally:
            self.switch(before)

    def move(self, source: Phase, target: Phase) -> None:
        """Count the time of one phase as another's."""
        if source in self.seconds:
            self.seconds[target] = self.seconds.get(target, 0.0) + self.seconds.pop(source)

    def total(self) -> float:
        """Return the seconds until the last switch, which are the sum of all phases."""
        return self.at - self.begun
