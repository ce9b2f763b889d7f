"""`longreach bench probe`: tracing an answer back to its context, ours beside ContextCite's."""

import argparse
import json
import shlex
from datetime import date
from importlib import metadata
from pathlib import Path

import torch
from rich.table import Table

from longreach.bench import Attribution, Protocol, Trial, compare_attribution, machine_name
from longreach.bench.attribution import KINDS
from longreach.bench.citing import load_context_cite
from longreach.cli.console import out, say
from longreach.errors import BadInput
from longreach.files import write_atomically
from longreach.probe import load_hugging_face
from longreach.runs import choose_device, commit_of_this_code


def add(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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
    parser.add_argument("--words", type=int, default=100, help="words of a context (default: 100)")
    parser.add_argument("--query", default="What is this text about?", help="asked of every text")
    parser.add_argument("--answer", type=int, default=16, metavar="TOKENS", help="length of the answer (default: 16)")
    parser.add_argument("--masks", default="64,256", help="how many masks ours may spend (default: 64,256)")
    parser.add_argument("--ablations", type=int, default=64, help="those of ContextCite (default: 64, as there)")
    parser.add_argument("--held-out", type=int, default=32, help="fresh masks of each kind (default: 32)")
    parser.add_argument("--keep", type=float, default=0.5, help="share that ours keeps (default: 0.5, as ContextCite)")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of the model (default: fp32)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--out", type=Path, help="write the figures to this .json file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.words < 1:
        raise BadInput(f"--words must be at least 1, got {args.words}")
    budgets = args.masks.split(",")
    if not all(budget.isdecimal() for budget in budgets):
        raise BadInput(f"--masks must be whole numbers, such as 64,256, got {args.masks!r}")
    given = {name: getattr(args, name) for name in ("query", "answer", "ablations", "held_out", "keep")}
    protocol = Protocol(masks=tuple(map(int, budgets)), **given)
    contexts = [_context(path, args.words) for path in args.texts]
    load_context_cite()  # complains before a model is loaded
    device = choose_device(args.device)
    model = load_hugging_face(args.model, device, args.precision)
    found = compare_attribution(model, contexts, protocol, _tell)
    flags = ("words", "query", "answer", "masks", "ablations", "held_out", "keep", "precision")
    words = [word for flag in flags for word in (f"--{flag.replace('_', '-')}", str(getattr(args, flag)))]
    names = [Path(args.model).name, *(path.name for path in args.texts)]
    facts = {
        "device": machine_name(device),
        "command": shlex.join(["longreach", "bench", "probe", *names, "--against", args.against, *words]),
        "commit": commit_of_this_code(),
        "date": date.today().isoformat(),
        "model": model.name,
        "torch": torch.__version__,
        **{name: metadata.version(name) for name in ("transformers", "context-cite")},
        **found.to_json(),
    }
    if args.out is not None:
        write_atomically(args.out, (json.dumps(facts, indent=1) + "\n").encode())
    if args.json:
        print(json.dumps(facts))
        return 0
    texts = "1 text" if len(contexts) == 1 else f"{len(contexts)} texts"
    out.print(_costs(found, f"{model.name}, {machine_name(device)}, {texts}"))
    out.print(_faithfulness(found))
    for note in found.notes:
        out.print(note, highlight=False, soft_wrap=True)
    return 0


def _context(path: Path, words: int) -> str:
    """The first words of a file, with single blanks: ContextCite looks its parts up in the text."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from error
    found = text.split()[:words]
    if not found:
        raise BadInput(f"{path} has no words")
    return " ".join(found)


def _tell(trial: Trial) -> None:
    say.print(
        f"text {trial.text + 1}: {trial.side}: {trial.seconds:.3g} s and {trial.tokens:.0f} tokens a target",
        highlight=False,
    )


def _costs(found: Attribution, title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("side", no_wrap=True)
    for column in ("s/target", "in texts", "times the first", "tokens/target", "failed"):
        table.add_column(column, justify="right")
    for row in found.rows:
        spread = f"{row.seconds[1]:.3g}..{row.seconds[2]:.3g}"
        cells = (f"{row.seconds[0]:.3g}", spread, f"{row.ratio[0]:.3g}", f"{row.tokens[0]:.0f}")
        table.add_row(row.side, *cells, f"{row.failed} of {row.targets}")
    return table


def _faithfulness(found: Attribution) -> Table:
    table = Table(
        title="LDS by kind of fresh mask: median over texts (lowest..highest)", title_justify="left", box=None
    )
    table.add_column("side", no_wrap=True)
    for kind in KINDS:
        table.add_column(kind.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in found.rows:
        cells = [f"{middle:.2f} ({low:.2f}..{high:.2f})" for middle, low, high in (row.lds[kind] for kind in KINDS)]
        table.add_row(row.side, *cells)
    return table
