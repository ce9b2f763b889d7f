"""`longreach theory reproduce`: the figures of the theory, computed, with tables and pictures."""

import argparse
import csv
import json
import time
from pathlib import Path

from rich.table import Table

from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.terminal.console import out, say
from longreach.theory.reproduce import FIGURES, Row


def run(args: argparse.Namespace, settings: list[str]) -> int:
    names = list(FIGURES) if args.only is None else args.only.split(",")
    for name in names:
        if name not in FIGURES:
            raise BadInput(f"unknown figure {name!r}{nearest(name, FIGURES)}")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[Row]] = {}
    for name in names:
        start = time.perf_counter()
        rows[name] = FIGURES[name]()
        say.print(f"{name}: {time.perf_counter() - start:.1f} s", highlight=False)
        if args.out is not None:
            _write(rows[name], args.out / f"{name}.csv")
    if args.out is not None:
        from longreach.theory.plots import draw_all  # matplotlib takes a while to load

        (args.out / "figures.json").write_text(json.dumps(rows, indent=1) + "\n")
        for path in draw_all(rows, args.out):
            say.print(f"picture  {path}", highlight=False)
    if args.json:
        print(json.dumps(rows))
        return 0
    for name in names:
        out.print(_table(name, rows[name]))
    return 0


def _write(rows: list[Row], path: Path) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _table(name: str, rows: list[Row]) -> Table:
    """What is said, under what settings, ours and what was announced."""
    table = Table(title=name, title_justify="left", box=None)
    for column in ("figure", "settings", "ours", "announced"):
        table.add_column(column)
    for row in rows:
        rest = {key: value for key, value in row.items() if key not in ("figure", "ours", "written")}
        said = ", ".join(f"{key} {_short(value)}" for key, value in rest.items())
        table.add_row(str(row["figure"]), said, _short(row["ours"]), str(row["written"]))
    return table


def _short(value: float | int | str | bool) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
