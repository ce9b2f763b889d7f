"""`longreach reach MODEL TEXT...`: how far a Hugging Face model holds."""

import argparse
import json
from functools import partial
from typing import TypeVar

from longreach.cli.columns import print_columns
from longreach.errors import BadInput
from longreach.evaluation import RISE
from longreach.extension import RETRIEVED, ReachResult, verdict
from longreach.extension.page import PAGE, table
from longreach.extension.result import FILE
from longreach.terminal.console import out, say
from longreach.terminal.progress import watch
from longreach.verbs.reaching import find_model, measure_reach

Number = TypeVar("Number", int, float)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    chosen = {
        "contexts": args.contexts,
        "samples": args.samples,
        "retrieval": not args.no_retrieval,
        "needles": _numbers("needles", args.needles, int),
        "depths": _numbers("depths", args.depths, float),
        "questions": args.questions,
        "batch_tokens": args.batch_tokens,
        "seed": args.seed,
    }
    found = measure_reach(
        find_model(args.model, None, args.precision, args.device),
        args.texts,
        chosen,
        args.encoding,
        args.probe,
        args.split,
        args.field,
        args.out,
        partial(watch, say, quiet=args.json),
    )
    if args.json:
        print(json.dumps(found.to_plain()))
        return 0
    _print(found)
    if args.out is not None:
        for name in (FILE, PAGE):
            out.print(f"{name[6:]:5} {args.out / name}", highlight=False, soft_wrap=True)
    return 0


def _print(found: ReachResult) -> None:
    for name, one in found.measured.items():
        rows = table(found, name)
        if len(found.measured) > 1:
            out.print(name, highlight=False, soft_wrap=True)
        columns = zip(rows["columns"], zip(*rows["rows"], strict=True), strict=True)
        if hidden := print_columns({title: cells for title, cells in columns if any(cells)}, ["context", "loss"]):
            say.print(f"no room for {', '.join(hidden)}: see --json or --out", style="dim")
        out.print(verdict(one), highlight=False, soft_wrap=True)
    if found.probe is not None:
        median = found.probe["k_sufficient"]
        few = "more tokens than were tried" if median is None else f"{median:g} tokens"
        out.print(f"half of the predictions need at most {few} ({found.probe['passages']} passages)", highlight=False)
    many = next(iter(found.measured.values())).losses[0].documents
    over = f"in brackets the 95% interval over {many} {found.texts.unit}"
    if many == 1:
        over = "without intervals, because all tokens are of one document: raise --samples"
    lines = [
        f"loss and gain in nats per token, on the same tokens at every context; {over}",
        f"holds to: the longest context before the loss is more than {RISE} nats above the least at shorter contexts",
    ]
    if any(one.retrieval for one in found.measured.values()):
        lines.append(
            f"retrieves: the longest context with at least {RETRIEVED:.0%} right answers before one that is clearly"
            " below; guessing is right in 6%"
        )
    for line in lines:
        say.print(line, highlight=False, soft_wrap=True)


def _numbers(name: str, text: str, kind: type[Number]) -> tuple[Number, ...]:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise BadInput(f"--{name} must be numbers such as 1,4, got {text!r:.40}") from error
