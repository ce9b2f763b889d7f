"""`longreach bench WHAT`: how fast training, evaluation and decoding are here, and beside Hugging Face's."""

import argparse
import importlib.util
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from importlib import metadata
from pathlib import Path

import torch

from longreach.bench import (
    DECODING,
    HEADLINE,
    TRAINING,
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
from longreach.cli import bench_drawing, bench_probe, bench_recipes, bench_tasks
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


Measure = Callable[[argparse.Namespace, _Setting], SpeedComparison | LengthReport]


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "bench",
        help="how fast it is, also beside Hugging Face",
        description="Both sides run in one process, in turns; medians with their spread, ratios, shares of the peak.",
    )
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    train = parts.add_parser(
        "train",
        help="one optimizer step",
        description="Optimizer steps: ours, which make their batches, beside those of Hugging Face's GPT-NeoX.",
    )
    train.add_argument("--task", default="copy", help="whose samples are trained on (default: copy)")
    train.add_argument("--compile", action="store_true", help="compile our model too")
    _add_common(train, _train, ("6,256,8,512,50", "3,128,4,64,40"), TRAINING, rounds=10)
    stack = parts.add_parser(
        "stack",
        help="many models as one computation",
        description="Optimizer steps of N models that are trained as one, beside one model alone, ours and theirs.",
    )
    stack.add_argument("--task", default="copy", help="whose samples are trained on (default: copy)")
    stack.add_argument("--compile", action="store_true", help="compile our models too")
    stack.add_argument("--models", type=int, help="how many are stacked (default: 32; on a CPU 4)")
    _add_common(stack, _stack, ("3,128,4,128,40", "2,64,4,32,20"), TRAINING, rounds=10)
    evaluation = parts.add_parser(
        "eval",
        help="exact match in one pass, beside decoding",
        description="Exact match of LENGTH answer tokens: one pass given the true prefix, beside decoding.",
    )
    evaluation.add_argument("--grid", action="store_true", help="instead, all scores of the recipe sparse_parity")
    evaluation.add_argument("--samples", type=int, help="samples in a cell of the grid (default: 1024; on a CPU 8)")
    _add_common(evaluation, _evaluate, ("6,256,8,64,500", "3,128,4,8,500"), DECODING, rounds=5)
    decode = parts.add_parser(
        "decode",
        help="generation with a cache",
        description="LENGTH new tokens, written greedily: ours beside Hugging Face's generate with the same weights.",
    )
    decode.add_argument("--prompt", type=int, default=32, help="tokens of a prompt (default: 32)")
    _add_common(decode, _decode, ("6,256,8,64,512", "3,128,4,8,64"), DECODING, rounds=5)
    lengths = parts.add_parser(
        "length",
        help="time and memory by length",
        description="Scores in one pass and training steps from LENGTH tokens on, doubling, until time or memory end.",
    )
    lengths.add_argument("--task", default="copy", help="whose samples are read (default: copy)")
    lengths.add_argument("--encoding", default="rope", help="how IDs enter; others than rope have no rival")
    lengths.add_argument("--attention", default="softmax", help="others than softmax have no rival")
    lengths.add_argument("--recompute", action="store_true", help="train with execution.recompute")
    lengths.add_argument("--up-to", type=int, help="the longest length (default: 131072; on a CPU 8192)")
    _add_common(lengths, _lengths, ("6,256,8,1,1024", "3,128,4,1,1024"), {}, rounds=3)
    engine = parts.add_parser(
        "parts",
        help="what each part of the engine gains",
        description="Optimizer steps with all parts of the engine, without each of them, and by the reference core.",
    )
    engine.add_argument("--task", default="copy", help="whose samples are trained on (default: copy)")
    engine.add_argument(
        "--recipe", metavar="RECIPE/VARIANT", help="instead, steps of a recipe, such as parity_far/rule"
    )
    engine.add_argument("--models", type=int, default=1, help="how many are stacked (default: 1)")
    engine.add_argument(
        "--model", choices=["transformer", "llama"], default="transformer", help="its class (default: transformer)"
    )
    _add_common(engine, _parts, ("6,256,8,512,50", "3,128,4,64,40"), {}, rounds=5)
    bench_recipes.add(parts)
    bench_tasks.add(parts)
    bench_drawing.add(parts)
    bench_probe.add(parts)


def _add_common(
    parser: argparse.ArgumentParser, measure: Measure, shapes: tuple[str, str], rivals: dict[str, str], rounds: int
) -> None:
    parser.add_argument(
        "--shape",
        metavar="LAYERS,WIDTH,HEADS,BATCH,LENGTH",
        help=f"size of the model and of what it is given (default: {shapes[0]}; on a CPU {shapes[1]})",
    )
    parser.add_argument(
        "--against", choices=["hf", *rivals, "none"], default="hf", help="whom to measure beside ours (default: hf)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default: auto)")
    parser.add_argument("--repeats", type=int, default=rounds, help=f"rounds (default: {rounds})")
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
    # the parser's own name is `longreach bench WHAT`
    parser.set_defaults(verb=partial(_run, parser.prog, measure, shapes), takes_settings=False)


def _run(prog: str, measure: Measure, shapes: tuple[str, str], args: argparse.Namespace, settings: list[str]) -> int:
    check_flags(args, ("repeats", "seconds", "peak", "samples", "prompt", "up_to", "models"))
    args.device = device = choose_device(args.device)
    args.shape = args.shape or shapes[0 if on_gpu(device) else 1]
    workload = Workload.parse(args.shape)
    _ = workload.model  # refuses what cannot be built before anything is measured
    peak = measure_peak(device) if args.peak is None else Peak(args.peak * 1e12, f"given: {args.peak:g} TFLOP/s")
    found = measure(args, _Setting(workload, device, Effort(args.repeats, args.seconds), peak))
    stamp = Stamp(machine_name(device), command_line(prog, args), commit_of_this_code(), date.today().isoformat())
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


def command_line(prog: str, args: argparse.Namespace) -> str:
    """Return the command that measures the same again, with every default written out, but for where results go."""
    words = prog.split()
    for name, value in vars(args).items():
        if name in ("verb", "takes_settings", "out", "headline", "json") or value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return shlex.join(words)


def versions() -> dict[str, str | None]:
    """Return the versions of torch and of transformers, where it is installed."""
    has_rival = importlib.util.find_spec("transformers") is not None
    return {"torch": torch.__version__, "transformers": metadata.version("transformers") if has_rival else None}
