"""`longreach check TASK`: find mistakes of a task before training."""

import argparse
import json
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from longreach.cli.flags import task_settings
from longreach.errors import BadInput
from longreach.terminal.console import out
from longreach.verbs.checking import TaskCheck, check


def run(args: argparse.Namespace, settings: list[str]) -> int:
    found = check(task_settings(args.task, settings), lengths=args.lengths, samples=args.samples, seed=args.seed)
    if args.json:
        print(json.dumps({"passed": found.passed, **asdict(found)}))
        return 0 if found.passed else 2
    for note in found.notes:
        out.print(f"note  {note}", markup=False, highlight=False, soft_wrap=True)
    if not found.passed:
        raise BadInput(*found.faults)
    out.print(_shortcuts(found))
    for warning in found.warnings:
        out.print(Text.assemble(("warning", "yellow"), f"  {warning}"), soft_wrap=True)
    out.print(found.verdict, markup=False, highlight=False, soft_wrap=True)
    return 0


def _shortcuts(found: TaskCheck) -> Table:
    table = Table(title="Answer tokens that trivial predictors guess", title_justify="left")
    for column in ("length", "best predictor", "right", "95% interval", "chance"):
        table.add_column(column, justify="left" if column == "best predictor" else "right")
    for one in found.shortcuts:
        interval = f"{one.low:.1%} to {one.high:.1%}"
        table.add_row(str(one.length), one.predictor, f"{one.accuracy:.1%}", interval, f"{one.chance:.1%}")
    return table
