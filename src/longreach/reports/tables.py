"""The table that a run ends with."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from longreach.reports.curves import THRESHOLDS, Group
from longreach.system.labels import visible

METRIC_NAMES = {
    "token_em_free": "exact match, free-running",
    "token_id_em_tf": "exact match of tokens and IDs, one pass with the true prefix",
    "token_em_tf": "exact match, one pass with the true prefix",
    "next_token": "next token right, given the true text before it",
}

_FOLDED = 8
"""Characters of a line of text that is folded as far as it may be."""
_PREFERRED = 16
"""Characters of a line of text beyond which further lengths come first."""


@dataclass(frozen=True)
class Column:
    """A column beside those of the lengths."""

    name: str
    cells: Sequence[str]
    folds: bool = False
    """Whether its text may take several lines.  Numbers may not."""
    spare: bool = False
    """Whether it may be left out where there is no room."""

    @property
    def full(self) -> int:
        """The characters of its longest cell."""
        return max(cell_len(visible(text)) for text in (self.name, *self.cells))

    def width(self, fold: int) -> int:
        """Return its characters if text is folded into lines of `fold` characters."""
        return min(self.full, max(len(self.name), fold)) if self.folds else self.full


@dataclass(frozen=True)
class TableRow:
    """The cells of a row of a table, by length."""

    cells: dict[int, str]
    trained_to: int | None
    """The longest training length; None: unknown."""


def score_table(groups: list[Group], title: str, width: int = 80) -> Table:
    """Return a row per variant and setting: the median over seeds by length, and how far it reaches.

    As many lengths are shown as fit into the width; the longest trained and the longest tested one always are.
    """
    front = [Column("variant", [group.variant for group in groups], folds=True)]
    if any(group.setting for group in groups):
        front.append(Column("setting", [group.setting for group in groups], folds=True))
    back = [Column(f"reach@{p}", [reach_text(group, p) for group in groups], spare=True) for p in THRESHOLDS]
    several = any(len(group.curves) > 1 for group in groups)
    caption = METRIC_NAMES[groups[0].metric] + ("; median over seeds (worst)" if several else "")
    rows = [TableRow(_cells(group), group.trained_to) for group in groups]
    return length_table(title, caption, front, rows, back, width)


def _cells(group: Group) -> dict[int, str]:
    middle, worst = group.middle(), group.worst()
    return {n: f"{middle[n]:.2f}" + (f" ({worst[n]:.2f})" if len(group.curves) > 1 else "") for n in middle}


def length_table(
    title: str, caption: str, front: list[Column], rows: list[TableRow], back: list[Column], width: int
) -> Table:
    """Return a table with a column for each length that fits between those in front and those at the back.

    The longest trained and the longest tested length are always there.  If they do not fit, text is folded, then spare
    columns are left out, the last one first.  The caption names what is left out.
    """
    lengths = sorted({length for row in rows for length in row.cells})
    alike = len({row.trained_to for row in rows}) == 1
    cells = [row.cells if alike else _starred(row) for row in rows]
    heads = {n: f"{n}{'*' if alike and _is_trained(n, rows[0]) else ''}" for n in lengths}
    widths = {n: max(len(heads[n]), *(_width(own.get(n, "-")) for own in cells)) for n in lengths}
    must, wanted = _order(lengths, rows, most=width // 4)
    room = width - 1 - sum(widths[n] + 3 for n in must)
    kept, fold = _make_room([*front, *back], room)
    room -= sum(column.width(fold) + 3 for column in kept)
    shown = list(must)
    for length in wanted:
        if widths[length] + 3 <= room:
            shown.append(length)
            room -= widths[length] + 3
    shown.sort()

    notes = [caption]
    if len(shown) < len(lengths):
        notes.append(f"{len(shown)} of {len(lengths)} lengths")
    if any(_is_trained(n, row) for row in rows for n in shown):
        notes.append("* = within the training lengths")
    if missing := [column.name for column in (*front, *back) if column not in kept]:
        notes.append(f"no room for {', '.join(missing)}")
    table = Table(
        title=Text(title, style="table.title"),
        caption=Text(".  ".join(filter(None, notes)), style="table.caption"),
        title_justify="left",
        caption_justify="left",
    )
    for column in (column for column in front if column in kept):
        room = _add(table, column, fold, room)
    for length in shown:
        table.add_column(heads[length], justify="right", no_wrap=True, width=widths[length])
    for column in (column for column in back if column in kept):
        room = _add(table, column, fold, room)
    for number, own in enumerate(cells):
        left, right = ([Text(c.cells[number]) for c in side if c in kept] for side in (front, back))
        table.add_row(*left, *(own.get(length, "-") for length in shown), *right)
    return table


def _add(table: Table, column: Column, fold: int, room: int) -> int:
    """Add a column, with room that is left for text that would be folded; return the rest of the room."""
    width = column.width(fold)
    more = max(0, min(room, column.full - width))
    justify: Literal["left", "right"] = "left" if column.folds else "right"
    table.add_column(column.name, justify=justify, width=width + more, overflow="fold", no_wrap=not column.folds)
    return room - more


def _is_trained(length: int, row: TableRow) -> bool:
    return row.trained_to is not None and length <= row.trained_to


def _starred(row: TableRow) -> dict[int, str]:
    """Mark the cells within the training lengths, where the lengths themselves are not the same for all rows."""
    return {n: f"{cell}*" if _is_trained(n, row) else cell for n, cell in row.cells.items()}


def _width(cell: str) -> int:
    return max(map(len, cell.split("\n")))


def _order(lengths: list[int], rows: list[TableRow], most: int) -> tuple[list[int], list[int]]:
    """Return the lengths that must be shown, and `most` others in the order in which they are wanted.

    These are the longest trained one of each row, the shortest one, and then the middle of the widest gap.
    """
    trained = [max((n for n in row.cells if _is_trained(n, row)), default=0) for row in rows]
    ends = sorted({n for n in trained if n}, reverse=True)
    must = list(dict.fromkeys([*lengths[-1:], *ends[:1]]))
    known = list(dict.fromkeys([*must, *ends, *lengths[:1]]))
    places = sorted(map(lengths.index, known))
    while len(known) < min(most, len(lengths)):
        low, high = max(pairwise(places), key=lambda gap: gap[1] - gap[0])
        insort(places, (low + high) // 2)
        known.append(lengths[(low + high) // 2])
    return must, known[len(must) :]


def _make_room(columns: list[Column], width: int) -> tuple[list[Column], int]:
    """Return the columns that fit into the width, and the characters of a line of their text."""
    spare = [column for column in columns if column.spare]
    kept, fold = columns, _PREFERRED
    for left_out in range(-1, len(spare) + 1):
        kept = [column for column in columns if column not in spare[len(spare) - max(0, left_out) :]]
        if sum(column.width(fold) + 3 for column in kept) <= width:
            break
        fold = _FOLDED
    return kept, fold


def reach_text(group: Group, threshold: float) -> str:
    """`160 (8x)`, or `80..160 (4x..8x)` from the worst seed to the best."""
    return reach_ratio(group.reaches(threshold), group.trained_to)


def reach_ratio(lengths: list[int], trained_to: int | None) -> str:
    """Return the least and the greatest, and both in multiples of the longest training length if it is known."""
    ends = sorted({min(lengths), max(lengths)})
    shown = "..".join(map(str, ends))
    return shown if trained_to is None else f"{shown} ({'..'.join(_times(length / trained_to) for length in ends)})"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 1000 else f"{ratio:.3g}x"
