"""`longreach eval RUN`: test a trained model at other lengths, or with other task settings."""

import argparse
import json
from functools import partial
from typing import Any

from longreach.cli.flags import evaluation_changes, short_flags
from longreach.config import Plain, read_value
from longreach.errors import BadInput
from longreach.evaluation import losses_to_json, to_csv, to_json
from longreach.evaluation.measures import read_names
from longreach.reports import RunResult, in_recipe_order, losses_to_csv, measure_tables, measured_runs, tables
from longreach.system.files import write_atomically
from longreach.terminal.console import out, say
from longreach.terminal.progress import watch
from longreach.verbs.scoring import given, runs_below, score_folder


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.out is not None and args.out.suffix not in (".json", ".csv"):
        raise BadInput(f"--out must end in .json or .csv, got {args.out}")
    if args.out is not None and not args.out.parent.is_dir():
        raise BadInput(f"there is no folder {args.out.parent} for --out")
    changes = short_flags(evaluation_changes(settings), device=args.device, batch_tokens=args.batch_tokens)
    asked, execution = _changes(args, changes.get("evaluate", {})), changes.get("execution", {})
    folders = runs_below(args.run)
    as_csv = args.out is not None and args.out.suffix == ".csv"
    if as_csv and len({folder.config(args.trust).task.open_ended for folder in folders}) > 1:
        raise BadInput("runs on text and others do not share columns: --out with a .json file takes both")
    names = () if args.measure is None else read_names(args.measure)
    if as_csv and names:
        raise BadInput("scores and measures do not share columns: --out with a .json file takes both")
    show = partial(watch, say, quiet=args.json)
    several = len(folders) > 1
    results = in_recipe_order(
        [score_folder(folder, asked, execution, args.trust, show, "evaluate", names, several) for folder in folders]
    )
    rows = [{**_label(result), **row} for result in results for row in _rows(result)]
    if args.out is not None:
        content = _as_csv(results) if as_csv else json.dumps(rows)
        write_atomically(args.out, content.encode())
    if args.json:
        print(json.dumps(rows))
        return 0
    tested = dict.fromkeys(result.card.test_ids for result in results)
    title = ", ".join([str(args.run), *(f"IDs {ids}" for ids in tested if ids != "plain")])
    for table in tables(results, title, out.width):
        out.print(table)
    for table in measure_tables(measured_runs(results), out.width):
        out.print(table)
    for result in results:
        if result.measured is not None:
            out.print(f"measures {result.folder.path / 'measures.json'}", markup=False, highlight=False)
    return 0


def _label(result: RunResult) -> dict[str, str]:
    """Return the columns in front of scores; they name changed IDs, so that no control passes for a result."""
    shortest, longest = result.card.trained_lengths.split("..")
    label = {"run": str(result.folder.path), "variant": result.info.variant}
    label |= {"trained_from": shortest, "trained_to": longest}
    return label if result.card.test_ids == "plain" else {**label, "test_ids": result.card.test_ids}


def _rows(result: RunResult) -> list[dict[str, Any]]:
    """Return scores, losses and measures; rows of measures have a field `measure`."""
    rows = [*to_json(result.scores), *losses_to_json(result.losses)]
    found = result.measured
    if found is not None:
        rows += [{"seed": result.seed, **one.to_plain(), "best": found.is_best(one)} for one in found.entries]
    return rows


def _as_csv(results: list[RunResult]) -> str:
    """Scores, or of text, which is judged by them, the losses."""
    labels = [_label(result) for result in results]
    if any(result.losses for result in results):
        return losses_to_csv(results, labels)
    scores = [score for result in results for score in result.scores]
    return to_csv(scores, [label for label, result in zip(labels, results, strict=True) for _ in result.scores])


def _changes(args: argparse.Namespace, changes: Plain) -> Plain:
    """Return the settings of the flags and those of --evaluate.FIELD; raise BadInput for a setting given twice."""
    flags = given(
        lengths=args.lengths,
        samples=args.samples,
        free_samples=args.free_samples,
        control=args.control,
        shift=args.shift,
        encoding=None if args.encoding is None else read_value(args.encoding),
        relabel_ids=args.relabel_ids or None,
        prompt_ids_only=args.prompt_ids_only or None,
    )
    for name in changes:
        if name in flags:
            raise BadInput(f"--{name.replace('_', '-')} and --evaluate.{name} are one setting: give one of them")
    return flags | changes
