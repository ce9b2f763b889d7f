"""`longreach bench recipes`: training speed of shipped recipes, for one model and for stacks."""

import argparse
import json
from dataclasses import replace
from datetime import date
from pathlib import Path

_ON_GPU = (
    "variable_assignment_far/marked,variable_assignment/ppc-pointer,parity_far/rule,"
    "parity_far/rule:model.id_heads=2,parity_far/ppc-pointer,sparse_parity/K8"
)
_ON_CPU = "parity_small/rule,parity_small/ppc-pointer"
_MODELS = ("1,8", "1,2")


def add(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from longreach.bench import HEADLINE, TRAINING

    parser = parts.add_parser(
        "recipes",
        help="training steps of recipes, for one model and for stacks",
        description="Steps a second of recipes for one model and for stacks of models, in turns, and beside Hugging"
        " Face's model where it has the same one.",
    )
    parser.add_argument(
        "--recipes",
        metavar="NAMES",
        help=f"RECIPE/VARIANT or RECIPE/VARIANT:FIELD=VALUE, separated by commas (default: {_ON_GPU}; on a CPU"
        f" {_ON_CPU})",
    )
    parser.add_argument(
        "--models", metavar="NUMBERS", help=f"models trained as one (default: {_MODELS[0]}; on a CPU {_MODELS[1]})"
    )
    parser.add_argument(
        "--against",
        choices=["hf", *TRAINING, "none"],
        default="none",
        help="whom to measure beside ours (default: none)",
    )
    parser.add_argument(
        "--whole",
        type=int,
        nargs="?",
        const=1500,
        metavar="STEPS",
        help="also run `longreach run` for each recipe with one seed and so many steps (default: 1500)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default: auto)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no round after so many (default: 120)")
    parser.add_argument("--peak", type=float, metavar="TFLOPS", help="the machine's peak (default: measured)")
    parser.add_argument("--out", type=Path, help="write the figures to this .json file")
    parser.add_argument(
        "--headline",
        nargs="?",
        type=Path,
        const=HEADLINE,
        metavar="FILE",
        help=f"update the rows of the same name in FILE (default: {HEADLINE})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
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
    from longreach.runs import choose_device, commit_of_this_code
    from longreach.system.files import write_atomically
    from longreach.terminal.console import out, say

    check_flags(args, ("repeats", "seconds", "peak", "whole"))
    args.device = device = choose_device(args.device)
    gpu = on_gpu(device)
    args.recipes = args.recipes or (_ON_GPU if gpu else _ON_CPU)
    args.models = args.models or _MODELS[0 if gpu else 1]
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
    command = command_line("longreach bench recipes", args)
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
    from longreach.errors import BadInput

    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise BadInput(f"--models must be whole numbers from 1, such as 1,8, got {text!r}")
    return list(dict.fromkeys(map(int, words)))
