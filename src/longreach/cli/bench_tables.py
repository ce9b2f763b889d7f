"""How figures about speed are shown."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median

from rich.table import Table

from longreach.bench import LengthReport, LengthRow, RecipeReport, SpeedComparison, StartTime
from longreach.runs.profile import (
    BUILD,
    CHECK,
    DEVICE,
    ESTIMATE,
    FIRST,
    FOLDERS,
    FREE,
    LOAD,
    LOG,
    ONE_PASS,
    PREPARE,
    REPORT,
    SAVE,
    START,
    TRAIN,
    VALIDATE,
)

_PARTS_OF_A_COMMAND = {
    "start": (START, CHECK),
    "prepare": (DEVICE, FOLDERS, BUILD, LOAD, PREPARE, FIRST),
    "train": (TRAIN, LOG, SAVE, VALIDATE),
    "test": (ESTIMATE, ONE_PASS, FREE),
    "report": (REPORT,),
}
"""Columns of a whole command, and the phases that each of them sums."""


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


def recipe_tables(report: RecipeReport, title: str) -> Iterator[Table]:
    """Yield a table for each recipe, and one of whole commands if there are any."""
    say_title = f"{title}\n\n"
    for recipe, rows in groupby(report.rows, lambda row: row.recipe):
        table = Table(title=f"{say_title}{recipe}", title_justify="left", box=None)
        table.add_column("side")
        for column in ("steps/s", "in rounds", "model steps/s", "ratio", "tokens/s", "peak", "first step"):
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(
                f"{row.models} stacked" if row.models > 1 else row.side,
                _short(row.steps_per_second),
                f"{_short(row.slowest)}..{_short(row.fastest)}",
                _short(row.model_steps_per_second),
                "" if row.ratio is None else f"{row.ratio:.3g}x",
                _short(row.tokens_per_second),
                "" if row.floor_share is None else _percent(row.floor_share),
                f"{row.seconds_to_first_step:.3g} s",
            )
        yield table
        say_title = ""
    if report.whole:
        yield _whole_table(report)


def _whole_table(report: RecipeReport) -> Table:
    table = Table(title="seconds of `longreach run` from the start of the process", title_justify="left", box=None)
    table.add_column("recipe", overflow="fold", min_width=26)
    for column in ("first step", "end", *_PARTS_OF_A_COMMAND):
        table.add_column(column, justify="right")
    for row in report.whole:
        parts = [sum(row.phases.get(name, 0.0) for name in names) for names in _PARTS_OF_A_COMMAND.values()]
        table.add_row(row.recipe, *(f"{seconds:.3g}" for seconds in (row.first_step, row.end, *parts)))
    return table


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
