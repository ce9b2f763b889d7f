"""`longreach probe MODEL TEXT`: which earlier tokens do a language model's predictions depend on?"""

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path

from longreach.cli.probe_reading import open_model, open_texts
from longreach.cli.probe_tables import print_calibration, print_shown, print_summary
from longreach.config import build
from longreach.errors import BadInput
from longreach.probe import LanguageModel, Passage, ProbeConfig, Probed, calibrate, probe, total_steps
from longreach.probe.calibration_figure import draw_calibration
from longreach.probe.summary import overview
from longreach.reports import save_png
from longreach.tasks import Task
from longreach.terminal.console import say
from longreach.terminal.progress import watch

_BUDGETS = (32, 64, 128, 256, 512)
_FOR_TEXTS = ("length", "passages", "targets", "chat", "split", "show", "method", "masks")
"""Flags that mean nothing to --calibrate."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    names = [field.name for field in fields(ProbeConfig)]
    config = build(ProbeConfig, {name: getattr(args, name) for name in names if getattr(args, name) is not None})
    _check(args)
    which, number = _targets(args.targets or ["all"])
    opened = open_model(args.model, args.device, args.precision, args.memory, args.trust)
    if args.calibrate is not None:
        return _calibrate(opened.model, *opened.task(), config, args)
    found = []
    for number_of_text, text in enumerate(open_texts(opened, args)):
        found.append(_probe_one(opened.model, text, which, number, config, args.json))
        if args.out is not None:
            found[-1].save(args.out / f"passage-{number_of_text}")
    if args.json:
        print(json.dumps(overview(found)))
        return 0
    print_summary(found)
    if args.show:
        print_shown(found[-1], args.show)
    return 0


def _calibrate(model: LanguageModel, task: Task, length: int, config: ProbeConfig, args: argparse.Namespace) -> int:
    rows = calibrate(model, task, length, args.calibrate, config, _BUDGETS)
    title = f"{model.name}: {task.name} at length {length}"
    if args.out is not None:
        save_png(draw_calibration(rows, title), args.out)
    if args.json:
        print(
            json.dumps(
                [{name: None if value != value else value for name, value in asdict(row).items()} for row in rows]
            )
        )
    else:
        print_calibration(rows, title)
    return 0


def _probe_one(
    model: LanguageModel, text: Passage, which: str, number: int, config: ProbeConfig, quiet: bool
) -> Probed:
    targets = text.targets(which, number, config.window)
    with watch(say, quiet) as observer:
        report = observer.phase(f"probe {text.title}", total_steps(config, targets))
        done = 0

        def progress(more: int) -> None:
            nonlocal done
            done += more
            report(done, "")

        return probe(model, text, targets, config, progress)


def _check(args: argparse.Namespace) -> None:
    if args.calibrate is None and args.text is None:
        raise BadInput("TEXT is missing: a file, - or a prepared corpus; or --calibrate")
    if args.text not in (None, "-") and not Path(args.text).exists():  # before a model is loaded in vain
        raise BadInput(f"there is no file {args.text}")
    if args.calibrate is not None:
        if args.text is not None:
            raise BadInput("--calibrate draws samples of the run's task: leave out TEXT")
        for flag in _FOR_TEXTS:
            if getattr(args, flag) is not None:
                raise BadInput(f"--{flag} does not go with --calibrate")
        if args.out is not None and args.out.suffix != ".png":
            raise BadInput(f"--out must end in .png with --calibrate, got {args.out}")
        if args.out is not None and not args.out.parent.is_dir():
            raise BadInput(f"there is no folder {args.out.parent} for --out")
    elif args.out is not None and args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise BadInput(f"--out {args.out} exists already, and is not an empty folder")
    if args.method not in (None, "masks") and args.masks is not None:
        raise BadInput(f"--masks concerns the method masks, not {args.method}")
    for flag in ("length", "passages", "show", "calibrate"):
        if getattr(args, flag) is not None and getattr(args, flag) < 1:
            raise BadInput(f"--{flag} must be at least 1, got {getattr(args, flag)}")
    if args.memory <= 0:
        raise BadInput(f"--memory must be positive, got {args.memory}")
    if args.json and args.show is not None:
        raise BadInput("--show concerns the table, not --json")


def _targets(words: list[str]) -> tuple[str, int]:
    if words == ["all"]:
        return "all", 1
    if len(words) == 2 and words[0] in ("last", "every") and words[1].isdecimal() and int(words[1]) > 0:
        return words[0], int(words[1])
    raise BadInput(f"--targets must be all, last N or every N, got {' '.join(words)!r}")
