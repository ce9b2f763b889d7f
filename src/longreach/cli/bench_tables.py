"""How figures about speed are shown."""

from collections.abc import Sequence
from statistics import median

from rich.table import Table

from longreach.bench import LengthReport, LengthRow, SpeedComparison, StartTime


def comparison_table(comparison: SpeedComparison, title: str) -> Table:
    """A line for each side, ours first."""
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("side", no_wrap=True)
    for column in ("tokens/s", "in rounds", "ours/this", "in rounds", "peak"):
        table.add_column(column, justify="right")
    for row in comparison.rows:
        ratios = ("", "")
        if row.ratio is not None:
            ratios = (f"{row.ratio:.3g}x", f"{row.ratio_lowest:.3g}..{row.ratio_highest:.3g}")
        rates = (_short(row.tokens_per_second), f"{_short(row.slowest)}..{_short(row.fastest)}")
        table.add_row(row.side, *rates, *ratios, _percent(row.floor_share))
    return table


def length_table(report: LengthReport, title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("side", no_wrap=True)
    for column in ("length", "tokens/s", "in rounds", "ms", "GiB", "peak"):
        table.add_column(column, justify="right")
    for row in report.rows:
        table.add_row(row.side, str(row.length), *_length_cells(row))
    return table


def length_line(row: LengthRow) -> str:
    """Progress: a row as soon as it is known."""
    rate, _, milliseconds, memory, _ = _length_cells(row)
    return f"{row.side} at {row.length}: {row.failure or f'{rate} tokens/s, {milliseconds} ms, {memory} GiB'}"


def _length_cells(row: LengthRow) -> tuple[str, ...]:
    if row.figures is None:
        return (row.failure, "", "", "", "")
    it = row.figures
    return (
        _short(it.tokens_per_second),
        f"{_short(it.slowest)}..{_short(it.fastest)}",
        f"{1e3 * it.seconds:.4g}",
        f"{it.memory / 2**30:.3g}",
        _percent(it.floor_share),
    )


def start_table(rows: Sequence[StartTime], title: str) -> Table:
    """Return a table with a line for each command."""
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("command", no_wrap=True)
    for column in ("seconds", "in rounds", "ratio", "in rounds"):
        table.add_column(column, justify="right")
    for row in rows:
        seconds, ratios = (
            (f"{median(values):.3g}", f"{min(values):.3g}..{max(values):.3g}") for values in (row.seconds, row.ratios)
        )
        table.add_row(row.name, *seconds, *ratios)
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _short(rate: float) -> str:
    """Three digits: 4.03M, 712k."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"
