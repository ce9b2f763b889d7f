"""A sweep file as it was written: what stands where, and all that is wrong with it."""

from dataclasses import dataclass, field
from pathlib import Path

from longreach.config import Plain, read_yaml, yaml_lines
from longreach.errors import BadInput

Place = tuple[str | int, ...]
"""Keys and indices that lead to a part of the file: (runs, 0, grid, ids, 1)."""


@dataclass
class SweepSource:
    """Collects mistakes, so that they are told all at once, in the order of the file."""

    path: Path
    content: Plain
    lines: dict[Place, int]
    mistakes: dict[tuple[int, str], None] = field(default_factory=dict)

    def blame(self, place: Place, text: str) -> None:
        self.mistakes[self.line(place), text] = None

    def line(self, place: Place) -> int:
        """Of a part, or of the nearest part around it that stands in the file itself."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def refuse_mistakes(self) -> None:
        if self.mistakes:
            raise BadInput(*(f"{self.path}:{line}: {text}" for line, text in sorted(self.mistakes)))


def read_source(path: Path) -> SweepSource:
    content = read_yaml(path)
    return SweepSource(path, content, yaml_lines(path))
