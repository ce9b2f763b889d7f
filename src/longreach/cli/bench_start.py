"""`longreach bench start`: how long commands take to start, beside `import torch`."""

import argparse
import json
import shlex
from collections.abc import Iterator
from datetime import date

import torch

from longreach.bench import Effort, Stamp, machine_name, time_start
from longreach.cli.bench_tables import start_table
from longreach.cli.main import parser
from longreach.errors import BadInput
from longreach.runs import choose_device, commit_of_this_code
from longreach.system.files import write_atomically
from longreach.terminal.console import out


def run(args: argparse.Namespace, settings: list[str]) -> int:
    for flag in ("repeats", "seconds"):
        if getattr(args, flag) <= 0:
            raise BadInput(f"--{flag} must be above 0, got {getattr(args, flag):g}")
    if args.out is not None and not args.out.resolve().parent.is_dir():
        raise BadInput(f"{args.out}: there is no folder {args.out.resolve().parent}")
    device = choose_device(args.device)
    flags = ["--recipe", args.recipe, "--device", device, "--repeats", str(args.repeats)]
    flags += ["--seconds", f"{args.seconds:g}"]
    command = shlex.join(["longreach", "bench", "start", *flags])
    stamp = Stamp(machine_name(device), command, commit_of_this_code(), date.today().isoformat())
    found = time_start(args.recipe, device, list(_helps(parser(), [])), Effort(args.repeats, args.seconds))
    facts = {**stamp.to_json(), "torch": torch.__version__, "rows": [row.to_json() for row in found]}
    if args.out is not None:
        write_atomically(args.out, (json.dumps(facts, indent=1) + "\n").encode())
    if args.json:
        print(json.dumps(facts))
        return 0
    rounds = len(found[0].seconds)
    title = f"{stamp.device}, torch {torch.__version__}, {rounds} {'round' if rounds == 1 else 'rounds'}"
    out.print(start_table(found, f"{title}; ratios to import torch"))
    return 0


def _helps(one: argparse.ArgumentParser, words: list[str]) -> Iterator[list[str]]:
    """Yield the command that shows the help of each verb, and of what is below it."""
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield [*words, word, "--help"]
                yield from _helps(below, [*words, word])
