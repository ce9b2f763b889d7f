"""Parser of `longreach bench`."""

import argparse
from pathlib import Path

from longreach.cli.facts import facts

DRAWING_SHAPES = ("6,256,8,256,50", "2,64,4,256,30")
"""Shapes of `longreach bench drawing` on a GPU and on a CPU."""
RECIPES = (
    "variable_assignment_far/marked,variable_assignment/ppc-pointer,parity_far/rule,"
    "parity_far/rule:model.id_heads=2,parity_far/ppc-pointer,sparse_parity/K8",
    "parity_small/rule,parity_small/ppc-pointer",
)
"""Recipes of `longreach bench recipes` on a GPU and on a CPU."""
STACKS = ("1,8", "1,2")
"""Models trained as one by `longreach bench recipes` on a GPU and on a CPU."""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "bench",
        help="how fast it is, also beside Hugging Face",
        description="Both sides run in one process, in turns; medians with their spread, ratios, shares of the peak.",
    )
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    quoted = facts()["bench"]
    train = parts.add_parser(
        "train",
        help="one optimizer step",
        description="Optimizer steps: ours, which make their batches, beside those of Hugging Face's GPT-NeoX.",
    )
    train.add_argument("--task", default="copy", help="whose samples are trained on (default: copy)")
    train.add_argument("--compile", action="store_true", help="compile our model too")
    _add_common(train, "train", ("6,256,8,512,50", "3,128,4,64,40"), quoted["training_rivals"], rounds=10)
    stack = parts.add_parser(
        "stack",
        help="many models as one computation",
        description="Optimizer steps of N models that are trained as one, beside one model alone, ours and theirs.",
    )
    stack.add_argument("--task", default="copy", help="whose samples are trained on (default: copy)")
    stack.add_argument("--compile", action="store_true", help="compile our models too")
    stack.add_argument("--models", type=int, help="how many are stacked (default: 32; on a CPU 4)")
    _add_common(stack, "stack", ("3,128,4,128,40", "2,64,4,32,20"), quoted["training_rivals"], rounds=10)
    evaluation = parts.add_parser(
        "eval",
        help="exact match in one pass, beside decoding",
        description="Exact match of LENGTH answer tokens: one pass given the true prefix, beside decoding.",
    )
    evaluation.add_argument("--grid", action="store_true", help="instead, all scores of the recipe sparse_parity")
    evaluation.add_argument("--samples", type=int, help="samples in a cell of the grid (default: 1024; on a CPU 8)")
    _add_common(evaluation, "eval", ("6,256,8,64,500", "3,128,4,8,500"), quoted["decoding_rivals"], rounds=5)
    decode = parts.add_parser(
        "decode",
        help="generation with a cache",
        description="LENGTH new tokens, written greedily: ours beside Hugging Face's generate with the same weights.",
    )
    decode.add_argument("--prompt", type=int, default=32, help="tokens of a prompt (default: 32)")
    _add_common(decode, "decode", ("6,256,8,64,512", "3,128,4,8,64"), quoted["decoding_rivals"], rounds=5)
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
    _add_common(lengths, "length", ("6,256,8,1,1024", "3,128,4,1,1024"), [], rounds=3)
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
    _add_common(engine, "parts", ("6,256,8,512,50", "3,128,4,64,40"), [], rounds=5)
    _add_recipes(parts)
    _add_tasks(parts)
    _add_drawing(parts)
    _add_probe(parts)
    _add_start(parts)


def _add_common(
    parser: argparse.ArgumentParser, measure: str, shapes: tuple[str, str], rivals: list[str], rounds: int
) -> None:
    headline = Path(facts()["bench"]["headline"])
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
        const=headline,
        metavar="FILE",
        help=f"update the rows of the same name in FILE (default: {headline})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(
        verb="longreach.cli.bench.run", takes_settings=False, prog=parser.prog, measure=measure, shapes=shapes
    )


def _add_recipes(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    quoted = facts()["bench"]
    headline = Path(quoted["headline"])
    parser = parts.add_parser(
        "recipes",
        help="training steps of recipes, for one model and for stacks",
        description="Steps a second of recipes for one model and for stacks of models, in turns, and beside Hugging"
        " Face's model where it has the same one.",
    )
    parser.add_argument(
        "--recipes",
        metavar="NAMES",
        help=f"RECIPE/VARIANT or RECIPE/VARIANT:FIELD=VALUE, separated by commas (default: {RECIPES[0]}; on a CPU"
        f" {RECIPES[1]})",
    )
    parser.add_argument(
        "--models", metavar="NUMBERS", help=f"models trained as one (default: {STACKS[0]}; on a CPU {STACKS[1]})"
    )
    parser.add_argument(
        "--against",
        choices=["hf", *quoted["training_rivals"], "none"],
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
        const=headline,
        metavar="FILE",
        help=f"update the rows of the same name in FILE (default: {headline})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(verb="longreach.cli.bench_recipes.run", takes_settings=False, prog=parser.prog)


def _add_tasks(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "tasks",
        help="how fast the samplers are",
        description="Tokens per second of every task's sampler with its default settings; on a CPU, of one core.",
    )
    parser.add_argument("--only", help="some tasks only, such as copy,addition")
    parser.add_argument("--tokens", type=int, default=100, help="about how many tokens a sample has (default: 100)")
    parser.add_argument("--batch", type=int, default=1024, help="samples made at once (default: 1024)")
    parser.add_argument("--repeats", type=int, default=20, help="the median of so many is told (default: 20)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--out", type=Path, help="write the figures to this .json file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(verb="longreach.cli.bench_tasks.run", takes_settings=False)


def _add_drawing(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "drawing",
        help="a task in plain Python beside a vectorised one",
        description="Optimizer steps on parity_scratchpad: with its vectorised sampler, and with a program in plain"
        " Python that worker processes run ahead of training.",
    )
    parser.add_argument(
        "--shape",
        metavar="LAYERS,WIDTH,HEADS,BATCH,LENGTH",
        help=f"size of the model and of its batches (default: {DRAWING_SHAPES[0]}; on a CPU {DRAWING_SHAPES[1]})",
    )
    parser.add_argument("--workers", type=int, help="processes that draw (default: as execution.workers)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (default: auto)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each sampler (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(verb="longreach.cli.bench_drawing.run", takes_settings=False)


def _add_probe(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    quoted = facts()["bench"]
    parser = parts.add_parser(
        "probe",
        help="tracing predictions back to tokens",
        description="Time, tokens computed and faithfulness (LDS) for each target, on fresh masks of both kinds.",
    )
    parser.add_argument("model", help="a chat model: a Hugging Face name or folder, or a .gguf file")
    parser.add_argument("texts", type=Path, nargs="+", metavar="TEXT", help="files; the beginning of each is a context")
    parser.add_argument(
        "--against", choices=["context-cite"], default="context-cite", help="whom to measure beside ours"
    )
    parser.add_argument("--words", type=int, default=100, help="words of a text (default: 100)")
    parser.add_argument(
        "--targets",
        nargs="+",
        default=["answer"],
        metavar="WHICH",
        help="answer: the tokens of the model's answer to a question; all, or every N: the tokens of the text itself, "
        "each with the text before it as its context (default: answer)",
    )
    parser.add_argument("--query", help=f"asked of every text (default: {quoted['query']})")
    parser.add_argument("--answer", type=int, metavar="TOKENS", help=f"length of it (default: {quoted['answer']})")
    parser.add_argument(
        "--sample",
        type=int,
        help="targets of each text that ContextCite is asked about, and all sides are judged on "
        f"(default: {quoted['sample']})",
    )
    parser.add_argument("--sources", help="what ContextCite cuts texts into (default: words,sentences)")
    parser.add_argument("--masks", help="how many masks ours may spend (default: 64,256; of texts 64,128,256,512)")
    parser.add_argument("--ablations", type=int, default=64, help="those of ContextCite (default: 64, as there)")
    parser.add_argument("--held-out", type=int, default=32, help="fresh masks of each kind (default: 32)")
    parser.add_argument("--keep", type=float, default=0.5, help="share that ours keeps (default: 0.5, as ContextCite)")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of the model (default: fp32)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--out", type=Path, help="write the figures to this .json file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(verb="longreach.cli.bench_probe.run", takes_settings=False)


def _add_start(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "start",
        help="how long commands take to start",
        description="Seconds of `import torch`, of help, and of a run until its first training step, in turns; ratios"
        " to `import torch` in the same round.",
    )
    parser.add_argument("--recipe", default="demo", help="recipe that is run (default: demo)")
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda (default: cpu)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default: 7)")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no round after so many (default: 120)")
    parser.add_argument("--out", type=Path, help="write the figures to this .json file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(verb="longreach.cli.bench_start.run", takes_settings=False)
