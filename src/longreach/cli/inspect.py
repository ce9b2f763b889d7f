"""`longreach inspect RUN`: one generation of a trained model, step by step: tokens, IDs, and the heads that look at the
tokens which share an ID."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from longreach.cli.trust import add_trust
from longreach.evaluation.look_inside import Detail, GeneratedStep, Inside
from longreach.terminal.console import out
from longreach.verbs.inspection import inspect

_NAMED = 4
"""Tokens that share an ID and are named; the rest are counted."""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("inspect", help="look inside one generation of a trained model", description=__doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--length", type=int, help="the sample's length (default: the longest of training)")
    parser.add_argument("--seed", type=int, help="another seed, another sample (default: 0)")
    parser.add_argument("--prompt", help="a prompt of yours instead of a sample")
    parser.add_argument("--step", type=int, help="details of this step, counted from 0")
    parser.add_argument("--out", type=Path, help="draw the attention of all heads into this .png file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    found = inspect(
        args.run,
        length=args.length,
        seed=args.seed,
        prompt=args.prompt,
        step=args.step,
        out=args.out,
        device=args.device,
        trust=args.trust,
    )
    if args.json:
        print(json.dumps(_to_json(found.inside, found.detail)))
    else:
        _print(found.inside, found.detail)
    return 0


def _to_json(inside: Inside, more: Detail | None) -> dict[str, Any]:
    error = inside.first_error
    return {
        "tokens": inside.words,
        "ids": inside.ids.T.tolist(),
        "prompt_tokens": inside.prompt_tokens,
        "predicts_ids": inside.predicts_ids,
        "steps": [asdict(step) for step in inside.steps],
        "true_answer": inside.true_answer,
        "stopped": inside.stopped,
        "right": inside.right,
        "first_error": None if error is None else {"step": error[0], "wrong": error[1]},
        "detail": None if more is None else asdict(more),
    }


def _print(inside: Inside, more: Detail | None) -> None:
    prompt, answer = inside.words[: inside.prompt_tokens], inside.words[inside.prompt_tokens :]
    _line(f"{' '.join(prompt)}  ->  {' '.join(answer)}")
    _print_steps(inside)
    if more is not None:
        _print_detail(inside, more)
    if not inside.stopped:
        _line("(cut off: the model did not stop)")
    _line(verdict(inside))


def _print_steps(inside: Inside) -> None:
    """One row per step; columns that would be empty are left out."""
    points = any(step.points_at for step in inside.steps)
    shares = any(step.shares_id_with for step in inside.steps)
    error = inside.first_error
    columns = ["step", "reads", "ID", "writes", "true", "next ID"]
    columns += ["true ID"] * inside.predicts_ids + ["points at"] * points + ["same ID", "heads"] * shares
    rows = []
    for step in inside.steps:
        row = [f"{step.number}", f"{step.reads}@{step.index}", _ids(step.read_ids), _written(step)]
        row += [step.true_token or "-", _chosen(step)]
        row += [_ids(step.true_ids)] * inside.predicts_ids + [_pointed(inside, step)] * points
        row += [_places(inside, step.shares_id_with), _heads(step)] * shares
        if error is not None and error[0] == step.number:
            row[0] += " !"
        rows.append(row)
    note = "heads: layer.head, from 0, and their attention on the tokens of the same ID"
    _print_table(columns, rows, note if shares else "no step shares its ID with an earlier token")


def _print_table(columns: list[str], rows: list[list[str]], note: str) -> None:
    """A table that breaks only lists into lines, and grows wider than the screen rather than leave anything out."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for number, column in enumerate(columns):
        items = [item for row in rows for item in row[number].replace(", ", ",\n").split("\n")]
        table.add_column(Text(column), min_width=max(map(len, [column, *items])))
    for row in rows:
        table.add_row(*map(Text, row), style="bold red" if row[0].endswith("!") else None)
    size = out.measure(table, options=out.options.update(width=1000))
    table.width = max(min(out.width, size.maximum), size.minimum)
    out.print(table, crop=False)
    _line(f"({note})")


def _print_detail(inside: Inside, more: Detail) -> None:
    _line(f"step {more.step}")
    _line("  tokens: " + ", ".join(f"{word} {_share(p)}" for word, p in more.tokens))
    for level, likeliest in enumerate(more.ids):
        which = f" of level {level}" if len(more.ids) > 1 else ""
        _line(f"  IDs{which}: " + ", ".join(f"{number} {_share(p)}" for number, p in likeliest))
    columns = ["head", *(f"{inside.words[place]}@{place}" for place in more.attended)]
    rows = [
        [f"{layer}.{head}", *map(_share, weights)]
        for layer, heads in enumerate(more.weights)
        for head, weights in enumerate(heads)
    ]
    _print_table(columns, rows, "attention on the tokens that some head attends to most")


def verdict(inside: Inside) -> str:
    """Whether the answer is right and, if not, what went wrong first."""
    unknown = "" if inside.knows_ids else " (the true IDs are not known)"
    if inside.right is None:
        return f"the true answer is not known{unknown}"
    truth, error = " ".join(inside.true_answer or []), inside.first_error
    if inside.right:
        harmless = "" if error is None else f", though the ID of step {error[0]} is wrong"
        return f"right{harmless}{unknown}"
    place = "" if error is None else f"; the first error is the {error[1]} of step {error[0]}"
    return f"wrong: {truth}{place}{unknown}"


def _written(step: GeneratedStep) -> str:
    return f"{step.writes} {'given' if step.given else _share(step.token_probability)}"


def _chosen(step: GeneratedStep) -> str:
    return _ids(step.ids) + ("" if step.id_probability is None else f" {_share(step.id_probability)}")


def _pointed(inside: Inside, step: GeneratedStep) -> str:
    found = []
    for level in step.points_at:
        move = f" {level.move:+d}" if level.move else ""
        target = "reserved" if level.index is None else f"{inside.words[level.index]}@{level.index}{move}"
        found.append(f"{target} {_share(level.probability)}")
    return ", ".join(found) or "-"


def _places(inside: Inside, places: list[int]) -> str:
    named = ", ".join(f"{inside.words[place]}@{place}" for place in places[:_NAMED])
    rest = f", {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return (named + rest) or "-"


def _heads(step: GeneratedStep) -> str:
    return ", ".join(f"{head.layer}.{head.head} {_share(head.mass)}" for head in step.heads) or "-"


def _ids(ids: list[int] | None) -> str:
    return "-" if ids is None else "/".join(map(str, ids))


def _share(value: float) -> str:
    """A number in 0..1 with two digits: .98"""
    return f"{value:.2f}".removeprefix("0")


def _line(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
