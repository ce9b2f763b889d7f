"""How recipes write whole numbers: a range to draw from, `1..8`, and a list to go through, `20:500:20`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from longreach.seeding import Draws

LARGEST = 2**31 - 1
"""The largest number of a range, and of every other setting that names no limit of its own: `Draws.below` draws no
larger ones."""
_MOST_LENGTHS = 100_000


@dataclass(frozen=True)
class Span:
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        for end in (self.low, self.high):
            if type(end) is not int or abs(end) > LARGEST:
                raise ValueError(f"a range has whole numbers of at most {LARGEST} as its ends, got {end!r:.40}")
        if self.low > self.high:
            raise ValueError(f"a range must not fall: {self.low}..{self.high}")

    @classmethod
    def parse(cls, text: object) -> "Span":
        """Read `3`, `"3"`, `"1..8"`, both ends as in `[1, 8]`, or a Span; ValueError for all else."""
        if isinstance(text, Span):
            return text
        if isinstance(text, list | tuple) and len(text) == 2:
            return cls(*text)
        found = re.fullmatch(r"(-?\d+)(?:\.\.(-?\d+))?", str(text).strip())
        if isinstance(text, bool) or not found:
            raise ValueError(f"expected a whole number or a range such as 1..8, got {text!r}")
        low = int(found[1])
        return cls(low, int(found[2]) if found[2] is not None else low)

    def draw(self, draws: Draws, purpose: str, at_most: "Int[Tensor, 'b'] | None" = None) -> Int[Tensor, "b"]:
        """Uniform in low..min(high, at_most), one for each sample."""
        size: int | Tensor = self.high - self.low + 1
        if at_most is not None:
            size = (at_most.clamp(max=self.high) - self.low + 1).clamp(min=1)[:, None]
        return self.low + draws.below(purpose, size, 1)[:, 0]

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"


@dataclass(frozen=True)
class Lengths:
    """Lengths to go through, in rising order."""

    values: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = isinstance(self.values, tuple) and all(type(value) is int for value in self.values)
        if not whole or not self.values or min(self.values) < 1 or max(self.values) > LARGEST:
            raise ValueError(f"lengths must be whole numbers from 1 to {LARGEST}, got {self.values!r:.80}")

    @classmethod
    def parse(cls, text: object) -> "Lengths":
        """From `40`, `"20:500:20"` (first, last, step; the last is included if the steps meet it),
        `"10,20,40:80:10"` or a list of these."""
        if isinstance(text, Lengths):
            return text
        parts = text if isinstance(text, list | tuple) else str(text).split(",")
        values: set[int] = set()
        for part in parts:
            found = re.fullmatch(r"(\d+)(?::(\d+)(?::(\d+))?)?", str(part).strip())
            step = int(found[3] or 1) if found else 0
            if not found or step == 0:
                raise ValueError(f"expected lengths such as 40 or 20:500:20, got {part!r}")
            first = int(found[1])
            last = int(found[2]) if found[2] else first
            if last < first:
                raise ValueError(f"lengths must not fall: {part!r}")
            if last > LARGEST or (last - first) // step >= _MOST_LENGTHS:
                raise ValueError(f"lengths are at most {_MOST_LENGTHS} numbers up to {LARGEST}, got {part!r}")
            values.update(range(first, last + 1, step))
        return cls(tuple(sorted(values)))

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)

    def __str__(self) -> str:
        return ",".join(map(str, self.values))
