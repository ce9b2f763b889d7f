"""`longreach bench recipes`: training speed of shipped recipes, for one model and for stacks."""

import argparse
import json
from dataclasses import replace
from datetime import date

import torch

from longreach.bench import (
    Effort,
    Peak,
    Stamp,
    headline_rows,
    machine_name,
    measure_peak,
    on_gpu,
    parse_recipes,
    time_recipes,
    time_whole,
    update_headline,
)
from longreach.cli.bench import check_flags, command_line, versions
from longreach.cli.bench_tables import recipe_tables
from longreach.cli.parsers.bench import RECIPES, STACKS
from longreach.errors import BadInput
from longreach.runs import choose_device, commit_of_this_code
from longreach.system.files import write_atomically
from longreach.terminal.console import out, say


def run(args: argparse.Namespace, settings: list[str]) -> int:
    check_flags(args, ("repeats", "seconds", "peak", "whole"))
    args.device = device = choose_device(args.device)
    gpu = on_gpu(device)
    args.recipes = args.recipes or RECIPES[0 if gpu else 1]
    args.models = args.models or STACKS[0 if gpu else 1]
    recipes, stacks = parse_recipes(args.recipes), _numbers(args.models)

    def tell(line: str) -> None:
        say.print(line, markup=False, highlight=False, soft_wrap=True)

    whole = []
    for measured in recipes if args.whole else ():  # before this process uses the device
        tell(f"longreach run {' '.join(measured.words)}")
        whole.append(time_whole(measured.name, measured.words, args.whole, device))
    peak = measure_peak(device) if args.peak is None else Peak(args.peak * 1e12, f"given: {args.peak:g} TFLOP/s")
    found = time_recipes(recipes, stacks, device, args.against, Effort(args.repeats, args.seconds), peak, tell)
    found = replace(found, whole=whole)
    command = command_line(args)
    stamp = Stamp(machine_name(device), command, commit_of_this_code(), date.today().isoformat())
    facts = {**stamp.to_json(), **versions(), "threads": torch.get_num_threads(), **found.to_json()}
    if args.out is not None:
        write_atomically(args.out, (json.dumps(facts, indent=1) + "\n").encode())
    if args.headline is not None:
        update_headline(args.headline, headline_rows(found, stamp))
    if args.json:
        print(json.dumps(facts))
        return 0
    for table in recipe_tables(found, f"{stamp.device}, torch {torch.__version__}, {peak.how}"):
        out.print(table)
    for note in found.notes:
        out.print(note, highlight=False, soft_wrap=True)
    return 0


def _numbers(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise BadInput(f"--models must be whole numbers from 1, such as 1,8, got {text!r}")
    return list(dict.fromkeys(map(int, words)))
