"""`longreach bench probe`: tracing an answer, or every token, back to its context, ours beside ContextCite's."""

import argparse
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from longreach.bench import (
    Attribution,
    EveryTarget,
    Protocol,
    Trial,
    compare_attribution,
    compare_every_target,
    machine_name,
)
from longreach.bench.citing import load_context_cite
from longreach.errors import BadInput
from longreach.probe import load_hugging_face
from longreach.runs import choose_device, commit_of_this_code
from longreach.system.files import write_atomically
from longreach.terminal.console import out, say

_ONLY_ANSWER, _ONLY_TEXT = ("query", "answer"), ("sample", "sources")
"""Flags that mean something for one choice of --targets alone."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.words < 1:
        raise BadInput(f"--words must be at least 1, got {args.words}")
    protocol = _protocol(args)
    contexts = [_context(path, args.words) for path in args.texts]
    commit = commit_of_this_code()  # that of now: while this runs there may be others
    load_context_cite()  # complains before a model is loaded
    device = choose_device(args.device)
    model = load_hugging_face(args.model, device, args.precision)
    if isinstance(protocol, EveryTarget):
        found = compare_every_target(model, contexts, protocol, _tell)
    else:
        found = compare_attribution(model, contexts, protocol, _tell)
    words = [f"--words {args.words}", f"--targets {' '.join(args.targets)}", *_as_flags(protocol)]
    words.append(f"--precision {args.precision}")
    names = [Path(args.model).name, *(path.name for path in args.texts)]
    facts = {
        "device": machine_name(device),
        "command": " ".join([shlex.join(["longreach", "bench", "probe", *names]), "--against", args.against, *words]),
        "commit": commit,
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


def _protocol(args: argparse.Namespace) -> Protocol | EveryTarget:
    given = {name: getattr(args, name) for name in ("ablations", "held_out", "keep")}
    if args.masks is not None:
        budgets = args.masks.split(",")
        if not all(budget.isdecimal() for budget in budgets):
            raise BadInput(f"--masks must be whole numbers, such as 64,256, got {args.masks!r}")
        given["masks"] = tuple(map(int, budgets))
    of_answer = args.targets == ["answer"]
    for name in _ONLY_TEXT if of_answer else _ONLY_ANSWER:
        if getattr(args, name) is not None:
            raise BadInput(f"--{name} does not go with --targets {' '.join(args.targets)}")
    if of_answer:
        return Protocol(**given, **_told(args, _ONLY_ANSWER))
    if args.sources is not None:
        given["sources"] = tuple(args.sources.split(","))
    return EveryTarget(every=_every(args.targets), **given, **_told(args, ("sample",)))


def _told(args: argparse.Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _every(words: list[str]) -> int:
    if words == ["all"]:
        return 1
    if len(words) == 2 and words[0] == "every" and words[1].isdecimal():
        return int(words[1])
    raise BadInput(f"--targets must be answer, all or every N, got {' '.join(words)!r}")


def _as_flags(protocol: Protocol | EveryTarget) -> Iterator[str]:
    """All that was asked for, and all that was not."""
    for name, value in asdict(protocol).items():
        if name != "every":
            word = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            yield f"--{name.replace('_', '-')} {shlex.quote(word)}"


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
    kinds = list(found.trials[0].lds)
    for kind in kinds:
        table.add_column(kind.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in found.rows:
        cells = [f"{middle:.2f} ({low:.2f}..{high:.2f})" for middle, low, high in (row.lds[kind] for kind in kinds)]
        table.add_row(row.side, *cells)
    return table
