"""`longreach results [PATH...]`: thousands of runs as one table, filtered, pivoted, written to a file."""

import argparse
import json
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from longreach.cli.columns import print_columns
from longreach.config import move_path
from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.system.files import read_json
from longreach.terminal.console import say

if TYPE_CHECKING:
    import pyarrow as pa

    from longreach.runs import Observer

_NAMED = 10
"""Damaged runs that are named one by one."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.compare is not None:
        return _compare(args)
    # not `from longreach import results`, which would ask longreach.api for it; says which package is missing
    import longreach.results as results

    _refuse_ignored(args)
    if args.out is not None:
        results.check_form(args.out)
    conditions = tuple(results.parse_condition(text) for text in args.where)
    with ExitStack() as stack:
        every = results.load_runs(args.paths or [Path("runs")], _phase(stack, args.json), _say)
    _name_damaged(every)
    rows = [move_path(name) for name in (args.rows or "variant").split(",")]
    args.pivot = args.pivot and move_path(args.pivot)
    selection = results.Selection(every, conditions, (*rows, args.pivot) if args.pivot else ())
    shown = _pivot(args, selection.cells, rows) if args.pivot else selection.runs
    if args.out is not None:
        whole = shown if args.pivot else selection.cells
        results.export(whole, args.out, _command(args))
        _say(f"{args.out}: {len(whole)} rows")
        if not args.pivot and args.out.suffix in results.TYPESET:
            _say("this is a row for each score: --pivot length makes a table to print")
    if args.json:
        print(json.dumps(shown.to_pylist()))
    elif args.out is None:
        keep = _ends(every, shown) if args.pivot == "length" else []
        _show(shown, 40 if args.limit is None else args.limit, "" if args.pivot else _states(shown), keep)
    return 0


def _compare(args: argparse.Namespace) -> int:
    """Show, print or write the paired differences of two variants."""
    from longreach.verbs.comparing import compare_paths, read_pair

    for flag in ("pivot", "rows", "summary", "limit"):
        if getattr(args, flag) is not None:
            raise BadInput(f"--{flag} does not go with --compare")
    if args.where:
        raise BadInput("--where does not go with --compare: name the folders or files to compare")
    if args.out is not None:
        from longreach.results import check_form

        check_form(args.out)
    first, second = read_pair(args.compare)
    metric = args.value or "token_em_free"
    found, problems = compare_paths(args.paths or [Path("runs")], first, second, metric)
    better = {"first": first, "second": second, "open": "open"}
    rows = [
        {
            "length": one.length,
            **one.overrides,
            "seeds": one.seeds,
            first: one.first,
            second: one.second,
            "difference": one.difference,
            "low": one.low,
            "high": one.high,
            "seeds ahead": f"{one.first_ahead} to {one.second_ahead}",
            "better": better[one.verdict],
        }
        for one in found
    ]
    for line in problems:
        _say(line)
    if args.json:
        print(json.dumps(rows))
    if args.out is not None:
        import pyarrow as pa

        from longreach.results import export

        export(pa.Table.from_pylist(rows), args.out, _command(args))
        _say(f"{args.out}: {len(rows)} rows")
    elif not args.json:
        print_columns({name: [row.get(name) for row in rows] for name in rows[0]}, ["length", "difference", "better"])
        _say(f"{metric}: {first} minus {second}, mean over equal seeds with its 95% interval; open: it contains 0")
    return 0


def _ends(every: "pa.Table", pivot: "pa.Table") -> list[str]:
    """Return the columns of a pivot by length that are always shown: the longest trained and the longest tested one."""
    lengths = [name for name in pivot.column_names if name.isdecimal()]
    spans = every["train.lengths"].unique().to_pylist() if "train.lengths" in every.column_names else []
    ends = [int(text.rpartition("..")[2]) for text in map(str, spans) if text.rpartition("..")[2].isdecimal()]
    trained = [name for name in lengths if int(name) <= max(ends, default=0)]
    return [*trained[-1:], *lengths[-1:]]


def _command(args: argparse.Namespace) -> str:
    """Return the command that makes the same table again, with every argument written out."""
    words = ["longreach", "results", *map(str, args.paths)]
    for condition in args.where:
        words += ["--where", condition]
    for name in ("compare", "pivot", "rows", "value", "summary"):
        if getattr(args, name) is not None:
            words += [f"--{name}", getattr(args, name)]
    return shlex.join([*words, "--out", str(args.out)])


def _refuse_ignored(args: argparse.Namespace) -> None:
    if args.pivot is None:
        for flag in ("rows", "value", "summary"):
            if getattr(args, flag) is not None:
                raise BadInput(f"--{flag} concerns a pivot: add --pivot length")
    if args.limit is not None and (args.json or args.out is not None):
        raise BadInput("--limit concerns the table that is shown, not --json or --out")
    if args.limit is not None and args.limit < 0:
        raise BadInput(f"--limit must not be negative, got {args.limit}")


def _phase(stack: ExitStack, quiet: bool) -> Callable[[str, int], Callable[[int, str], None]]:
    """Progress of a first read; Ctrl-C keeps what was read."""

    @cache
    def observer() -> "Observer":
        from longreach.terminal.progress import watch  # brings torch, which a table that is known need not wait for

        return stack.enter_context(watch(say, quiet))

    def phase(title: str, total: int) -> Callable[[int, str], None]:
        return observer().phase(title, total)

    return phase


def _say(line: str) -> None:
    say.print(line, markup=False, highlight=False, soft_wrap=True)


def _name_damaged(runs: "pa.Table") -> None:
    states, problems = runs["state"].to_pylist(), runs["problem"].to_pylist()
    damaged = [problem for state, problem in zip(states, problems, strict=True) if state == "damaged"]
    for problem in damaged[:_NAMED]:
        _say(problem)
    if len(damaged) > _NAMED:
        _say(f"and {len(damaged) - _NAMED} more that are damaged: see --where state=damaged")


def _pivot(args: argparse.Namespace, cells: "pa.Table", rows: list[str]) -> "pa.Table":
    from longreach.results import SUMMARIES, pivot

    metric, summary = args.value or "token_em_free", args.summary or "median"
    metrics = [name for name in dict.fromkeys(cells["metric"].to_pylist()) if name is not None]
    if metric not in metrics:
        raise BadInput(f"no run has a score {metric!r}{nearest(metric, metrics)}")
    if summary not in SUMMARIES:
        raise BadInput(f"unknown summary {summary!r}{nearest(summary, SUMMARIES)}")
    return pivot(cells, rows, args.pivot, metric, summary, _variants(cells) if "variant" in rows else ())


def _variants(cells: "pa.Table") -> list[str]:
    """Return the variants of all recipes, in the order that the first run of each recipe recorded."""
    first: dict[str, str] = {}
    for recipe, run in zip(cells["recipe"].to_pylist(), cells["run"].to_pylist(), strict=True):
        first.setdefault(recipe, run)
    records = [read_json(Path(run) / "run.json", dict) for run in first.values()]
    return list(dict.fromkeys(name for record in records for name in record.get("variants", [])))


def _states(runs: "pa.Table") -> str:
    states = runs["state"].to_pylist()
    counts = {state: states.count(state) for state in ("finished", "unfinished", "failed", "damaged")}
    return f"{len(states)} runs: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _show(table: "pa.Table", limit: int, caption: str, keep: list[str]) -> None:
    """As many lines as asked for; what is left out is named."""
    lines = table.slice(0, limit or len(table))
    hidden = print_columns(lines.to_pydict(), keep)
    notes = [caption] if caption else []
    if len(lines) < len(table):
        notes.append(f"{len(table) - len(lines)} more lines: --limit 0")
    if hidden:
        notes.append(f"no room for {', '.join(hidden)}: see --json or --out")
    for note in notes:
        _say(note)
