"""`longreach inspect RUN`: one generation of a trained model, step by step: tokens, dependencies and, for each level of
IDs, the tokens that share an ID and the heads that attend to them.  `--out FILE.html` writes a page of several."""

import argparse
import json
from collections.abc import Collection
from dataclasses import asdict

from rich import box
from rich.table import Table
from rich.text import Text

from longreach.evaluation.inside import (
    Detail,
    GeneratedStep,
    HeadAttention,
    Inside,
    LevelStep,
    MatchCount,
    Pointed,
    verdict,
)
from longreach.evaluation.inside_data import inside_data
from longreach.terminal.console import out
from longreach.verbs.inspection import inspect

_NAMED = 4
"""Tokens that share an ID and are named; the rest are counted."""
_NEEDED = 8
"""Dependencies that are named; the rest are counted."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    found = inspect(
        args.run,
        length=args.length,
        seed=args.seed,
        samples=args.samples,
        prompt=args.prompt,
        step=args.step,
        out=args.out,
        device=args.device,
        trust=args.trust,
    )
    is_page = args.out is not None and args.out.suffix == ".html"
    more = None if found.detail is None else asdict(found.detail)
    data = [inside_data(inside) for inside in found.samples] if args.json else []
    if args.json and is_page:
        print(json.dumps({"html": str(args.out), "samples": data}))
    elif args.json:
        print(json.dumps(data[0] | {"detail": more}))
    elif is_page:
        for number, inside in enumerate(found.samples):
            _line(f"{number:5} {verdict(inside)}")
        _line(f"html  {args.out}")
    else:
        _print(found.inside, found.detail)
    return 0


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
    """Print a block per step with a row per level; columns that would be empty are left out."""
    levels, error = len(inside.levels), inside.first_error
    points = any(level.points_at for step in inside.steps for level in step.levels)
    shares = any(level.matches for step in inside.steps for level in step.levels)
    both = levels > 1 and any(step.shares_id_with for step in inside.steps)
    depends = any(step.depends_on is not None for step in inside.steps)
    columns = ["step", "reads", "writes", "true", *["depends on"] * depends, *["level"] * (levels > 1)]
    columns += ["ID", "next ID", *["true ID"] * inside.predicts_ids, *["points at"] * points]
    columns += ["same ID", "heads"] * shares
    rows: list[list[str]] = []
    marked = set()
    for step in inside.steps:
        wrong = error is not None and error[0] == step.number
        own = [f"{step.number}{' !' * wrong}", f"{step.reads}@{step.index}", _written(step), step.true_token or "-"]
        own += [_places(inside, step.depends_on or [], _NEEDED)] * depends
        block = []
        for level in step.levels:
            row = [*[level.level] * (levels > 1), str(level.read_id), _chosen(level)]
            row += [_id(level.true_id)] * inside.predicts_ids + [_pointed(inside, level.points_at)] * points
            block.append(row + [_places(inside, level.matches), _heads(inside, level.heads, level.matches)] * shares)
        if both:
            row = ["every level", "", "", *[""] * inside.predicts_ids, *[""] * points]
            block.append([*row, _places(inside, step.shares_id_with), _heads(inside, step.heads, step.shares_id_with)])
        if wrong:
            marked.add(len(rows))
        rows += [[*(own if number == 0 else [""] * len(own)), *row] for number, row in enumerate(block)]
    note = "heads: layer.head, from 0, and their attention on the tokens of the same ID"
    _print_table(columns, rows, note if shares else "no step shares its ID with an earlier token", marked)
    if shares:
        counts = [count for count in inside.matches if count.steps or count.level is not None]
        _line(f"(same ID: {'; '.join(_count(inside, count) for count in counts)})")


def _count(inside: Inside, count: MatchCount) -> str:
    which = "" if len(inside.levels) == 1 else f"{count.level or 'every level'} "
    needed = "" if count.needed is None else f" ({count.needed} needed)"
    return f"{which}in {count.steps} of {len(inside.steps)} steps, {count.tokens} tokens{needed}"


def _print_table(columns: list[str], rows: list[list[str]], note: str, marked: Collection[int] = ()) -> None:
    """A table that breaks only lists into lines, and grows wider than the screen rather than leave anything out.

    Rows with the numbers in `marked` are printed in red.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for number, column in enumerate(columns):
        items = [item for row in rows for item in row[number].replace(", ", ",\n").split("\n")]
        table.add_column(Text(column), min_width=max(map(len, [column, *items])))
    for number, row in enumerate(rows):
        table.add_row(*map(Text, row), style="bold red" if number in marked else None)
    size = out.measure(table, options=out.options.update(width=1000))
    table.width = max(min(out.width, size.maximum), size.minimum)
    out.print(table, crop=False)
    _line(f"({note})")


def _print_detail(inside: Inside, more: Detail) -> None:
    _line(f"step {more.step}")
    _line("  tokens: " + ", ".join(f"{word} {_share(p)}" for word, p in more.tokens))
    for level, likeliest in enumerate(more.ids):
        which = f" of {inside.levels[level].name}" if len(more.ids) > 1 else ""
        _line(f"  IDs{which}: " + ", ".join(f"{number} {_share(p)}" for number, p in likeliest))
    step = inside.steps[more.step]
    shown = [number for number, level in enumerate(step.levels) if level.matches]
    columns = ["head", *(f"same {step.levels[number].level if len(step.levels) > 1 else 'ID'}" for number in shown)]
    columns += [f"{inside.words[place]}@{place}" for place in more.attended]
    rows = [
        [f"{layer}.{head}", *(_share(more.matched[number][layer][head]) for number in shown), *map(_share, weights)]
        for layer, heads in enumerate(more.weights)
        for head, weights in enumerate(heads)
    ]
    sums = "all tokens of the same ID, then on " if shown else ""
    _print_table(columns, rows, f"attention on {sums}the tokens that some head attends to most")


def _written(step: GeneratedStep) -> str:
    return f"{step.writes} {'given' if step.given else _share(step.token_probability)}"


def _chosen(level: LevelStep) -> str:
    return _id(level.id) + ("" if level.id_probability is None else f" {_share(level.id_probability)}")


def _pointed(inside: Inside, pointed: Pointed | None) -> str:
    if pointed is None:
        return "-"
    move = f" {pointed.move:+d}" if pointed.move else ""
    level = "" if pointed.level is None else f" ({pointed.level})"
    target = "reserved" if pointed.index is None else f"{inside.words[pointed.index]}@{pointed.index}{level}{move}"
    return f"{target} {_share(pointed.probability)}"


def _places(inside: Inside, places: list[int], most: int = _NAMED) -> str:
    named = places[:most]
    rest = f", {len(places) - len(named)} more" if len(places) > len(named) else ""
    return ", ".join(f"{inside.words[place]}@{place}" for place in named) + rest or "-"


def _heads(inside: Inside, heads: list[HeadAttention], matches: list[int]) -> str:
    """Name heads with their attention and, of several tokens of the same ID, the one that gets most of it."""
    texts = [
        f"{head.layer}.{head.head} {_share(head.mass)}" + f" {inside.words[head.most]}@{head.most}" * (len(matches) > 1)
        for head in [head for head in heads if _share(head.mass) != ".00"] or heads[:1]
    ]
    return ", ".join(texts) or "-"


def _id(number: int | None) -> str:
    return "-" if number is None else str(number)


def _share(value: float) -> str:
    """A number in 0..1 with two digits: .98"""
    return f"{value:.2f}".removeprefix("0")


def _line(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
