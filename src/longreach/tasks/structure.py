"""Position IDs from the structure of a text: sentences, lines, cells, indentation, brackets.

All of it follows from the characters written so far, so that generation can go on with it, and nothing is given away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.tasks.base import Level

_OPENING, _CLOSING = b"([{", b")]}"
_BLANKS = b" \t"


class Traits(NamedTuple):
    """What of each token matters to the structure; all have the same shape."""

    begins: Bool[Tensor, "*n"]
    """It begins a segment."""
    divides: Bool[Tensor, "*n"]
    """It begins a cell of a segment."""
    blanks: Int[Tensor, "*n"]
    """Blanks that it adds to the beginning of a line."""
    solid: Bool[Tensor, "*n"]
    """It has something else than blanks."""
    deeper: Int[Tensor, "*n"]
    """Brackets that it opens, less those that it closes."""
    ends: Bool[Tensor, "*n"]
    """It ends a document, and with it every bracket."""

    def of(self, tokens: Int[Tensor, "*m"]) -> "Traits":
        """Of each of these tokens, where the traits are those of a vocabulary."""
        return Traits(*(trait[tokens] for trait in self))


@dataclass(frozen=True, kw_only=True)
class Structure:
    """Coupled IDs of a text, level by level (ours): its segment, and within it the cell, the indentation, the depth of
    brackets and the place.  Only segments are numbered on and on; the other IDs stay within their bounds."""

    segments: str = ""
    """A token that has one of these characters begins a new segment: `.!?` and line breaks give sentences, line breaks
    alone the lines of a program, the rows of a table, the items of a list.  Empty: no coupling at all."""
    cells: str = ""
    """A token that has one of these begins a new cell of its segment: a comma, `|` or tab in a table."""
    indents: int = 0
    """So many depths of indentation are told apart, in columns; deeper ones share the last.  0: not a level."""
    depths: int = 0
    """So many depths of brackets are told apart; deeper ones share the last.  0: not a level."""
    places: int = 128
    """Places within a segment or cell, and cells, that are told apart; those beyond share the last ID.  With `indents`,
    all blanks before a line have place 1."""

    def __post_init__(self) -> None:
        for name, least in (("indents", 0), ("depths", 0), ("places", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"structure.{name} must be at least {least}, got {getattr(self, name)}")
        if not self.segments and (self.cells or self.indents or self.depths):
            raise ValueError("structure.segments is missing: cells, indents and depths are told within segments")
        if self.indents and self.segments != "\n":
            raise ValueError(
                f"structure.indents is about lines: structure.segments must be a line break, got {self.segments!r}"
            )
        if self.indents and self.cells:
            raise ValueError("structure.indents and structure.cells cannot both be set: rows of cells are not indented")
        if self.indents and self.places < 2:
            raise ValueError("structure.places must be at least 2 with indents: place 1 is that of the blanks")

    @property
    def levels(self) -> tuple[Level, ...]:
        if not self.segments:
            return ()
        bounded = {
            "cell": self.places if self.cells else 0,
            "indent": self.indents,
            "depth": self.depths,
            "place": self.places,
        }
        return (Level("segment"), *(Level(name, size) for name, size in bounded.items() if size))

    def traits(self, spelling: Sequence[bytes], end: int) -> Traits:
        """Of every token of a vocabulary, from its bytes."""
        begins = [_any(self.segments, spelt) for spelt in spelling]
        begins[end] = True
        tails = [spelt[spelt.rfind(b"\n") + 1 :] for spelt in spelling]  # what stands in the last line
        tails[end] = b""
        return Traits(
            torch.tensor(begins),
            torch.tensor([_any(self.cells, spelt) for spelt in spelling]),
            torch.tensor([len(tail) - len(tail.lstrip(_BLANKS)) for tail in tails]),
            torch.tensor([bool(tail.strip(_BLANKS)) for tail in tails]),
            torch.tensor([_count(_OPENING, spelt) - _count(_CLOSING, spelt) for spelt in spelling]),
            torch.arange(len(spelling)) == end,
        )

    def ids(self, traits: Traits) -> Int[Tensor, "b g t"]:
        """Of whole texts, whose first token begins a segment whatever it is."""
        index = torch.arange(traits.begins.shape[1], device=traits.begins.device)
        begins = traits.begins | (index == 0)
        levels = [begins.cumsum(1)]
        restarts = begins
        if self.cells:
            divides = traits.divides & ~begins
            restarts = begins | divides
            levels.append(1 + _since(begins, divides).clamp(max=self.places - 1))
        counted = ~restarts
        if self.indents:
            solid_so_far = _since(begins, traits.solid)
            leading = solid_so_far == traits.solid  # nothing but blanks before it in its line
            levels.append(1 + _since(begins, traits.blanks * leading).clamp(max=self.indents - 1))
            counted = solid_so_far > 0
        if self.depths:
            levels.append(_depth(traits, self.depths))
        levels.append(1 + _since(restarts, counted).clamp(max=self.places - 1))
        return torch.stack(levels, dim=1)

    def follow(self, traits: Traits, before: Int[Tensor, "b g"]) -> Int[Tensor, "b g"]:
        """Of one more token of each text, from the IDs of the one before."""
        was = dict(zip((level.name for level in self.levels), before.unbind(1), strict=True))
        begins, restarts = traits.begins, traits.begins
        now = {"segment": was["segment"] + begins}
        if self.cells:
            restarts = begins | traits.divides
            now["cell"] = torch.where(begins, 1, (was["cell"] + traits.divides).clamp(max=self.places))
        counted = ~restarts
        if self.indents:
            leading = begins | (was["place"] == 1)  # place 1 is that of the blanks before a line
            so_far = torch.where(begins, 1, was["indent"])
            now["indent"] = (so_far + traits.blanks * leading).clamp(max=self.indents)
            counted = ~leading | traits.solid
        if self.depths:
            depth = (was["depth"] + traits.deeper).clamp(1, self.depths)
            now["depth"] = torch.where(traits.ends, 1, depth)
        now["place"] = (torch.where(restarts, 1, was["place"]) + counted).clamp(max=self.places)
        return torch.stack([now[level.name] for level in self.levels], dim=1)


def _any(characters: str, spelt: bytes) -> bool:
    return any(character.encode() in spelt for character in characters)


def _count(characters: bytes, spelt: bytes) -> int:
    return sum(byte in characters for byte in spelt)


def _since(starts: Bool[Tensor, "b t"], amounts: Tensor) -> Int[Tensor, "b t"]:
    """The sum of amounts from the last start on, up to and with each place."""
    total = amounts.cumsum(1)
    before = total - amounts.long()
    index = torch.arange(starts.shape[1], device=starts.device)
    return total - before.gather(1, index.where(starts, 0).cummax(1).values)


def _depth(traits: Traits, deepest: int) -> Int[Tensor, "b t"]:
    """A counter that starts at 1, goes up and down, and is held within 1..deepest at every step.

    A step maps x to clamp(x + add, low, high), and two such steps are a step of the same form: so all are composed
    with those before them in log2(t) rounds.
    """
    add = traits.deeper.masked_fill(traits.ends, 0)
    low = torch.ones_like(add)
    high = torch.full_like(add, deepest).masked_fill(traits.ends, 1)
    reach = 1
    while reach < add.shape[1]:
        # the steps that lie `reach` before: of the first ones nothing lies there, and they stay as they are
        own_add, own_low, own_high = (step[:, reach:] for step in (add, low, high))
        joined = (
            own_add + add[:, :-reach],
            (low[:, :-reach] + own_add).clamp(own_low, own_high),
            (high[:, :-reach] + own_add).clamp(own_low, own_high),
        )
        add, low, high = (
            torch.cat([step[:, :reach], new], 1) for step, new in zip((add, low, high), joined, strict=True)
        )
        reach *= 2
    return (1 + add).clamp(low, high)
