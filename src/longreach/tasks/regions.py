"""Regions of a prompt, and the levels of position IDs that cursors over them have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from longreach.tasks.base import Level


@dataclass(frozen=True, kw_only=True)
class Region:
    """How the words of one region stand in the prompt, and which IDs they have.

    Places count from 1.  With `record: 2` two words share a place, and a second level numbers them within it.
    """

    close: str = ";"
    """The word behind the last place; it has a place of its own.  Empty: there is none, and `at_end` cannot be read."""
    opening: str = ""
    """A word in front of the region, with the reserved ID."""
    backward: bool = False
    """Whether places count from the last word to the first.  The closing word then stands in front."""
    record: int = 1
    """How many words share a place."""
    field: int = 1
    """The word of a record at which a cursor stands after it moved.  A read lets it stand at the word that was read."""
    mark: str = ""
    """A word of the region that stands before a place and shares its ID: cursors start there."""
    size: int = 0
    """The number of words, where it never varies; 0 if it does.  A region needs it, `close`, or an `opening` behind it,
    so that prompts can be read back."""
    start: Literal["first", "nowhere"] = "first"
    """Where cursors start if there is no mark: at place 1, or nowhere until `find`."""
    placed: bool = True
    """Whether its words have IDs.  False: the reserved one, so that cursors are found by content alone."""
    written: bool = False
    """Whether the region is a part of the answer, to which `push` adds.  Place 1 is the sign in front of the answer."""
    given: bool = False
    """Whether its words are no part of the prompt: `take` writes the next one into the answer, where it is given."""

    def __post_init__(self) -> None:
        if self.record < 1:
            raise ValueError(f"region.record must be at least 1, got {self.record}")
        if not 1 <= self.field <= self.record:
            raise ValueError(f"region.field must be in 1..{self.record}, the words of a record, got {self.field}")
        if self.record > 1 and (self.written or self.given or self.mark):
            raise ValueError("region.record is for words of the prompt without a mark")


@dataclass(frozen=True)
class Layout:
    """The regions of a program, and the levels of its cursors."""

    specs: Mapping[str, Region]
    of_cursor: Mapping[str, str]
    level_of: Mapping[str, str]

    @cached_property
    def placing(self) -> dict[str, list[str]]:
        """Return the cursors of each level, where their regions have IDs."""
        found: dict[str, list[str]] = {}
        for cursor, region in self.of_cursor.items():
            if self.specs[region].placed and not self.specs[region].given:
                found.setdefault(self.level_of[cursor], []).append(cursor)
        return found

    @cached_property
    def fielded(self) -> dict[str, str]:
        """Return the regions whose places hold several words, each with the cursor that its level of fields follows."""
        found: dict[str, str] = {}
        for cursors in self.placing.values():
            for cursor in cursors:
                region = self.of_cursor[cursor]
                if self.specs[region].record > 1 and (region not in found or cursor == region):
                    found[region] = cursor
        return {name: found[name] for name in self.specs if name in found}

    @cached_property
    def coupling_levels(self) -> tuple[Level, ...]:
        fields = [Level(f"{name} field", size=self.specs[name].record) for name in self.fielded]
        regions = {level: {self.of_cursor[one] for one in cursors} for level, cursors in self.placing.items()}
        growing = []
        for level, own in regions.items():
            shared = sum(own == other for other in regions.values()) > 1
            growing.append(Level(level, space="+".join(sorted(own)) if shared else ""))
        return (*growing, *fields)


@dataclass
class RegionWords:
    """The places of one region: for each, the indices of its words in the sequence."""

    spec: Region
    places: list[tuple[int, ...]] = field(default_factory=list)
    start: int | None = 1
    marks: list[tuple[int, int]] = field(default_factory=list)
    """Index and place of each mark."""
    beginning: dict[str, list[int]] = field(default_factory=dict)
    """Places that begin with a word, in order."""

    @property
    def closes(self) -> bool:
        """Return whether a closing word stands behind the last place."""
        return bool(self.spec.close) and not self.spec.written

    def inside(self, place: int | None) -> bool:
        return place is not None and 1 <= place <= len(self.places)
