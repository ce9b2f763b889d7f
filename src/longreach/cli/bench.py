"""`longreach bench WHAT`: how fast training, evaluation and decoding are here, and beside Hugging Face's."""

import argparse
import importlib.util
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib import metadata

import torch

from longreach.bench import (
    Effort,
    LengthReport,
    LengthRow,
    Peak,
    SpeedComparison,
    Stamp,
    Workload,
    headline_rows,
    machine_name,
    measure_peak,
    on_gpu,
    time_decoding,
    time_evaluation,
    time_grid,
    time_lengths,
    time_parts,
    time_stack,
    time_training,
    update_headline,
)
from longreach.cli.bench_tables import comparison_table, length_line, length_table
from longreach.errors import BadInput
from longreach.runs import choose_device, commit_of_this_code
from longreach.system.files import write_atomically
from longreach.terminal.console import out, say


@dataclass(frozen=True)
class _Setting:
    """What every measurement is given besides its own flags."""

    workload: Workload
    device: str
    effort: Effort
    peak: Peak


_Measure = Callable[[argparse.Namespace, _Setting], SpeedComparison | LengthReport]


def run(args: argparse.Namespace, settings: list[str]) -> int:
    check_flags(args, ("repeats", "seconds", "peak", "samples", "prompt", "up_to", "models"))
    args.device = device = choose_device(args.device)
    args.shape = args.shape or args.shapes[0 if on_gpu(device) else 1]
    workload = Workload.parse(args.shape)
    _ = workload.model  # refuses what cannot be built before anything is measured
    peak = measure_peak(device) if args.peak is None else Peak(args.peak * 1e12, f"given: {args.peak:g} TFLOP/s")
    found = _MEASURES[args.measure](args, _Setting(workload, device, Effort(args.repeats, args.seconds), peak))
    stamp = Stamp(machine_name(device), command_line(args), commit_of_this_code(), date.today().isoformat())
    facts = {**stamp.to_json(), **versions(), "threads": torch.get_num_threads(), **found.to_json()}
    if args.out is not None:
        write_atomically(args.out, (json.dumps(facts, indent=1) + "\n").encode())
    if args.headline is not None:
        update_headline(args.headline, headline_rows(found, stamp))
    if args.json:
        print(json.dumps(facts))
        return 0
    title = (
        f"{found.name}: {stamp.device}, torch {torch.__version__}, peak {peak.flops / 1e12:.3g} TFLOP/s ({peak.how})"
    )
    if isinstance(found, SpeedComparison):
        rounds = found.rows[0].rounds
        out.print(comparison_table(found, f"{title}, {rounds} {'round' if rounds == 1 else 'rounds'}"))
        for note in found.notes:
            out.print(note, highlight=False, soft_wrap=True)
    else:
        out.print(length_table(found, title))
        out.print(f"{found.stopped}; memory: {found.memory}", highlight=False, soft_wrap=True)
    return 0


def check_flags(args: argparse.Namespace, positive: Sequence[str]) -> None:
    """Raise BadInput for a number that is not above 0, and for a file in a folder that does not exist."""
    for flag in positive:
        value = getattr(args, flag, None)
        if value is not None and value <= 0:
            raise BadInput(f"--{flag.replace('_', '-')} must be above 0, got {value:g}")
    for path in (args.out, args.headline):
        if path is not None and not path.resolve().parent.is_dir():
            raise BadInput(f"{path}: there is no folder {path.resolve().parent}")


def _train(args: argparse.Namespace, it: _Setting) -> SpeedComparison:
    return time_training(it.workload, args.task, it.device, args.against, args.compile, it.effort, it.peak)


def _stack(args: argparse.Namespace, it: _Setting) -> SpeedComparison:
    models = args.models or (32 if on_gpu(it.device) else 4)
    return time_stack(it.workload, models, args.task, it.device, args.against, args.compile, it.effort, it.peak)


def _evaluate(args: argparse.Namespace, it: _Setting) -> SpeedComparison:
    if args.samples is not None and not args.grid:
        raise BadInput("--samples concerns the grid: add --grid")
    if not args.grid:
        return time_evaluation(it.workload, it.device, args.against, it.effort, it.peak)
    samples = args.samples or (1024 if on_gpu(it.device) else 8)
    return time_grid(it.workload, samples, it.device, it.effort, it.peak)


def _decode(args: argparse.Namespace, it: _Setting) -> SpeedComparison:
    return time_decoding(it.workload, args.prompt, it.device, args.against, it.effort, it.peak)


def _parts(args: argparse.Namespace, it: _Setting) -> SpeedComparison:
    workload = replace(it.workload, architecture=args.model)
    return time_parts(workload, args.task, args.recipe, args.models, it.device, it.effort, it.peak)


def _lengths(args: argparse.Namespace, it: _Setting) -> LengthReport:
    up_to = args.up_to or (131_072 if on_gpu(it.device) else 8192)
    if up_to < it.workload.length:
        raise BadInput(f"--up-to {up_to} is below the first length, {it.workload.length}")

    def progress(row: LengthRow) -> None:
        say.print(length_line(row), highlight=False)

    ours = replace(it.workload, encoding=args.encoding, attention=args.attention, recompute=args.recompute)
    _ = ours.model  # refuses parts that nobody has
    if args.against != "none" and ours.own_parts:
        raise BadInput(f"Hugging Face's GPT-NeoX has no {' and no '.join(ours.own_parts)}: add --against none")
    return time_lengths(ours, up_to, args.task, it.device, args.against, it.effort, it.peak, progress)


_MEASURES: dict[str, _Measure] = {
    "train": _train,
    "stack": _stack,
    "eval": _evaluate,
    "decode": _decode,
    "length": _lengths,
    "parts": _parts,
}
_NO_FLAGS = ("verb", "takes_settings", "prog", "measure", "shapes", "out", "headline", "json")
"""Names in the namespace that are no settings of a measurement."""


def command_line(args: argparse.Namespace) -> str:
    """Return the command that measures the same again, with every default written out, but for where results go."""
    words = args.prog.split()  # the parser's own name is `longreach bench WHAT`
    for name, value in vars(args).items():
        if name in _NO_FLAGS or value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return shlex.join(words)


def versions() -> dict[str, str | None]:
    """Return the versions of torch and of transformers, where it is installed."""
    has_rival = importlib.util.find_spec("transformers") is not None
    return {"torch": torch.__version__, "transformers": metadata.version("transformers") if has_rival else None}
