"""`longreach theory compare RUNS`: errors of trained models on planted tasks beside those the theory predicts."""

import argparse
import csv
import io
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from longreach.reports.growth import GrowthComparison, compare
from longreach.reports.tables import Column, TableRow, length_table
from longreach.system.files import write_atomically
from longreach.terminal.console import out, say

_RULE = (
    "Wrong answers (of the worst seed) over what the theory predicts; rho: how often background looks like a planted "
    "token.  Verdicts by intervals, beyond training: grows "
    "faster or slower, the measured one is above or below the predicted one at some length; nothing excluded, every "
    "predicted one is wider than half of chance; not learned, above half of chance at training length"
)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    found, unfinished = compare(args.paths, args.at, args.by, trust=args.trust)
    for line in unfinished:
        say.print(line, markup=False, highlight=False)
    without = sorted({comparison.attention for comparison in found if comparison.fixed_at is not None})
    if args.by == "loss" and without:
        say.print(f"{', '.join(without)} has no margin: it goes by errors all the same", highlight=False)
    content = json.dumps([_plain(comparison) for comparison in found], indent=None if args.json else 1)
    if args.out is not None:
        _write(found, content, args.out)
    if args.json:
        print(content)
        return 0
    out.print(_table(found, out.width))
    return 0


def _write(found: list[GrowthComparison], content: str, folder: Path) -> None:
    from longreach.reports.figures import save_png  # matplotlib takes a while to load
    from longreach.reports.growth_figure import growth_figure

    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for comparison in found for row in comparison.rows()]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / "compare.csv", text.getvalue().encode())
    write_atomically(folder / "compare.json", (content + "\n").encode())
    save_png(growth_figure(found), folder / "compare.png")
    say.print(f"picture  {folder / 'compare.png'}", highlight=False)


def _plain(comparison: GrowthComparison) -> dict[str, Any]:
    """For JSON, which has no infinity: null is a margin without an end."""
    content = asdict(comparison)
    content["margins"] = [[margin if math.isfinite(margin) else None for margin in pair] for pair in comparison.margins]
    for name in ("measured", "predicted"):
        content[name] = {length: value._asdict() for length, value in getattr(comparison, name).items()}
    content["limits"] = [limit._asdict() for limit in comparison.limits]
    return {**content, "verdict": comparison.verdict}


def _table(found: list[GrowthComparison], width: int) -> Table:
    """Return a row for each setting, with as many lengths as fit."""
    settings = [(c.attention, c.k, c.rho) for c in found]
    twice = len(set(settings)) < len(settings)  # something else tells them apart
    front = [Column("runs", [c.name for c in found], folds=True)] if twice else []
    front += [
        Column("attention", [c.attention for c in found], folds=True),
        Column("k", [str(c.k) for c in found]),
        Column("rho", [f"{c.rho:.3g}" for c in found]),
        Column("seeds", [str(len(c.seeds)) for c in found], spare=True),
    ]
    rows = [TableRow({length: _cell(c, length) for length in c.measured}, c.trained_to) for c in found]
    return length_table("", _RULE, front, rows, [Column("verdict", [c.verdict for c in found], folds=True)], width)


def _cell(comparison: GrowthComparison, length: int) -> str:
    measured, predicted = comparison.measured[length], comparison.predicted[length]
    return f"{_share(measured.wrong)} ({_share(measured.worst)})\n{_share(predicted.low)}-{_share(predicted.high)}"


def _share(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")
