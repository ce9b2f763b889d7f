"""`longreach extend MODEL`: make a Hugging Face model read longer texts."""

import argparse
import json
from functools import partial

from longreach.errors import BadInput
from longreach.terminal.console import out, say
from longreach.terminal.progress import watch
from longreach.verbs.extending import describe, estimate_extension, make_extension
from longreach.verbs.scoring import given

_SETTINGS = [
    *("to", "window", "trained", "rope", "ids", "steps", "batch_size", "lr", "lora", "controls", "samples"),
    *("field", "test", "documents", "seed", "precision"),
]


def run(args: argparse.Namespace, settings: list[str]) -> int:
    asked = given(**{name: getattr(args, name) for name in _SETTINGS})
    if args.estimate:
        found = estimate_extension(args.model, device=args.device, **asked)
        _print(json.dumps(found.to_json()) if args.json else "\n".join(describe(found)))
        return 0
    if args.out is None or not args.data:
        raise BadInput("--data and --out are needed, except with --estimate")
    show = partial(watch, say, quiet=args.json)
    try:
        made = make_extension(args.model, args.data, args.out, asked, args.device, args.resume, show)
    except KeyboardInterrupt:
        say.print("interrupted; what is finished is kept.  To go on: the same command with --resume", soft_wrap=True)
        return 130
    _print(json.dumps(made.to_plain()) if args.json else f"{made}\n\n{made.path}: {made.result.name}")
    return 0


def _print(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
