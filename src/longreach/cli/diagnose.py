"""`longreach diagnose`: what a task, a trained model or a file of samples lets one expect of longer lengths."""

import argparse
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median

from rich.table import Table
from rich.text import Text

from longreach.cli.flags import task_settings
from longreach.config import Plain
from longreach.diagnosis import Diagnosis, NeedsSummary, SchemeReport
from longreach.diagnosis.calibrate import FAR, Case, calibrate
from longreach.diagnosis.findings import STRAY, TOLERATED
from longreach.errors import BadInput
from longreach.system.files import write_atomically
from longreach.terminal.console import out, say
from longreach.terminal.progress import watch
from longreach.verbs.diagnosing import check_sizes, make_diagnosis, save


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.calibrate is not None:
        check_sizes(args.samples, args.steps)
        return _calibrate(args, settings)
    if args.source is None:
        raise BadInput("what is to be diagnosed? a task's name, a run folder or a .jsonl file")
    show = partial(watch, say, quiet=args.json)
    source = _source(args.source, settings)
    found = make_diagnosis(source, args.train, args.target, args.samples, args.steps, args.seed, args.trust, show)
    if args.out is not None:
        save(found, args.out)
        say.print(f"picture  {args.out / 'diagnosis.png'}", highlight=False)
    if args.json:
        print(json.dumps(asdict(found)))
        return 0
    _print(found)
    return 0


def _source(name: str, settings: list[str]) -> Path | Plain:
    """Return a file, a run folder, or a task's settings."""
    path = Path(name)
    if path.suffix != ".jsonl" and not path.is_dir():
        return task_settings(name, settings)
    if settings:
        raise BadInput(f"unknown argument {settings[0]!r}: {'a run' if path.is_dir() else 'a file'} has its settings")
    return path


def _calibrate(args: argparse.Namespace, settings: list[str]) -> int:
    if args.source is not None or settings or args.calibrate < 1:
        raise BadInput("--calibrate takes a number of planted tasks from 1, and no source")
    if (args.train, args.target, args.steps) != (None, None, None):
        raise BadInput("--calibrate has lengths and steps of its own")
    with watch(say, quiet=args.json) as observer:
        report = observer.phase("calibrate", args.calibrate)
        cases = list(calibrate(args.calibrate, args.seed, report))
    rows = [asdict(case) for case in cases]
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        write_atomically(args.out / "calibration.json", (json.dumps(rows, indent=1) + "\n").encode())
    if args.json:
        print(json.dumps(rows))
        return 0
    out.print(calibration_table(cases))
    return 0


def calibration_table(cases: list[Case]) -> Table:
    """How often k and span were right, and losses within the forecast's interval, by share of look-alikes."""
    table = Table(title=f"{len(cases)} planted tasks", title_justify="left")
    for column in ("look-alikes", "tasks", "k right", "span within 1", "loss", "within", "forecast / measured"):
        table.add_column(column)
    for rho in sorted({case.rho for case in cases}):
        some = [case for case in cases if case.rho == rho]
        for place in range(len(some[0].measured)):
            pairs = [(list(c.forecast.values())[place].value, list(c.measured.values())[place]) for c in some]
            ratios = sorted(forecast / max(measured, 1e-12) for forecast, measured in pairs)
            within = sum(case.within(list(case.measured)[place]) for case in some)
            first = [str(rho), str(len(some)), str(sum(c.right_k for c in some)), str(sum(c.right_span for c in some))]
            table.add_row(
                *(first if place == 0 else [""] * 4),
                f"at {FAR[place]}x",
                str(within),
                f"{median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}",
            )
    return table


def _print(found: Diagnosis) -> None:
    about = f", trained at {found.trained}, asked about {found.target}"
    out.print(Text.assemble((found.source, "bold"), about))
    out.print(_needs(found))
    out.print(_schemes(found))
    for text in _lines(found):
        out.print(f"- {text}", highlight=False)
    if found.forecast:
        out.print(_forecast(found))
    for warning in found.warnings:
        out.print(Text.assemble(("warning", "yellow"), f"  {warning}"))


def _needs(found: Diagnosis) -> Table:
    table = Table(title=f"What an answer token needs ({found.needs_from})", title_justify="left")
    for column in ("", "tokens (median)", "span (9 in 10)", "distance (9 in 10)"):
        table.add_column(column)
    table.add_row(f"lengths up to {found.short_to}", *_cells(found.short))
    pooled = found.long_from != found.long_at
    asked = f"lengths {found.long_from} to {found.long_at}" if pooled else f"length {found.long_at}"
    table.add_row(asked, *_cells(found.long))
    if found.read is not None:
        table.add_row("the model reacts to", *_cells(found.read))
    return table


def _cells(shape: NeedsSummary) -> list[str]:
    return [str(shape.k), str(shape.span), str(shape.distance)]


def _schemes(found: Diagnosis) -> Table:
    table = Table(
        title=f"Position IDs, best first: what lengths up to {found.short_to} show of {found.long_at}",
        title_justify="left",
        caption="\n".join(_columns(found)),
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in ("IDs", "uncovered", "to", "kappa", "strange", "alike", "span"):
        table.add_column(column, no_wrap=True)
    for report in found.schemes:
        table.add_row(*_scheme(report))
    return table


def _columns(found: Diagnosis) -> list[str]:
    """What the columns mean."""
    return [
        *([f"aligned, published: {found.coupling}"] if found.coupling else []),
        "uncovered: samples that need a difference of IDs never trained",
        f"to: the longest length up to which at most {TOLERATED:.0%} are uncovered",
        "kappa: how much rarer in training the worst covered difference is",
        "strange: tokens at untrained differences, needed or not",
        "alike: others with the IDs of a needed token;  span: of IDs, 9 in 10",
    ]


def _scheme(report: SchemeReport) -> list[str]:
    last = report.at_target
    part = last.uncovered
    return [
        report.scheme,
        f"{part.value:.0%} [{100 * part.low:.0f}, {100 * part.high:.0f}]",
        str(report.covered_to) if report.covered_to else "-",
        "-" if last.kappa is None else "{} [{}, {}]".format(*map(_two_digits, last.kappa)),
        f"{last.strangers:.0%}",
        _two_digits(last.alike),
        f"{last.id_span:.0f}",
    ]


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _lines(found: Diagnosis) -> list[str]:
    before, after = found.margins
    lines = [
        f"scores of needed tokens must be {before:.1f} above all others at {found.short_to} for softmax to stray by at"
        f" most {STRAY:.0%}, and {after:.1f} at {found.target}: scaled_softmax grows them with length"
    ]
    if found.accuracy is not None:
        lines.append(f"exact match at training lengths, with the true prefix given: {found.accuracy}")
    return lines


def _forecast(found: Diagnosis) -> Table:
    table = Table(title="If errors go on growing as they do within training", title_justify="left")
    for column in ("length", "loss 1 - p(right)", "exact match"):
        table.add_column(column)
    for length, forecast in found.forecast.items():
        table.add_row(str(length), str(forecast.loss), str(forecast.exact))
    return table
