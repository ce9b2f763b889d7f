"""Curves of any length in limited memory."""

from array import array
from collections.abc import Sequence

_MOST = 512


class MetricHistory:
    """Values by step: each point of a short curve, every second, fourth, ... of a long one, and always the last."""

    def __init__(self) -> None:
        self.steps, self.values = array("q"), array("d")
        self._stride, self._count = 1, 0
        self._last: tuple[int, float] | None = None

    def add(self, step: int, value: float) -> None:
        """Add a point to the end."""
        self._last = step, value
        if self._count % self._stride == 0:
            self.steps.append(step)
            self.values.append(value)
            if len(self.steps) == _MOST:
                self.steps, self.values = self.steps[::2], self.values[::2]
                self._stride *= 2
        self._count += 1

    @property
    def last(self) -> float | None:
        """Return the last value."""
        return None if self._last is None else self._last[1]

    def points(self, most: int) -> list[tuple[int, float]]:
        """Return at most so many points, the first and the last among them."""
        found = list(zip(self.steps, self.values, strict=True))
        if self._last is not None and found[-1][0] != self._last[0]:
            found.append(self._last)
        return found if len(found) <= most else [found[place] for place in spread(len(found), most)]


def spread(count: int, most: int) -> Sequence[int]:
    """Return `most` indices below `count`, evenly spread from the first to the last."""
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]
