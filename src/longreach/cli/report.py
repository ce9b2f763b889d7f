"""`longreach report PATH...`: table, figures and page from runs, files of scores, probes or measured reach."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from longreach.cli.probe_report_table import probe_table
from longreach.reports import FigureConfig, ProbeReport, tables
from longreach.terminal.console import out, say
from longreach.verbs.reporting import write


def run(args: argparse.Namespace, settings: list[str]) -> int:
    names = ("figure", "size", "metric", "panels", "x", "y", "scale")
    config = FigureConfig(**{name: getattr(args, name) for name in names})
    report, results, problems, probes = write(args.paths, args.out, config)
    for line in problems:
        say.print(line, markup=False, highlight=False, soft_wrap=True)
    if isinstance(report, ProbeReport):
        return _on_probes(report, len(probes), args.json)
    counts = {"runs": len(results), "unfinished": len(problems)}
    if isinstance(report, Path):
        if args.json:
            print(json.dumps({**counts, report.suffix[1:].lower(): str(report)}))
        else:
            _name([report])
        return 0
    paths = {"png": str(report.png), "html": str(report.html), "csv": str(report.csv)}
    if args.json:
        print(json.dumps({"title": report.title, **counts, **paths, "files": [str(path) for path in report.files]}))
        return 0
    for table in tables(results, report.title, out.width):
        out.print(table)
    _name(report.files)
    return 0


def _on_probes(report: ProbeReport, texts: int, as_json: bool) -> int:
    paths = {"html": str(report.html), "csv": str(report.csv), "json": str(report.json)}
    if as_json:
        print(json.dumps({"texts": texts, **paths, "figures": [str(path) for path in report.figures]}))
        return 0
    out.print(probe_table(report.rows))
    _name([report.html, report.csv, report.json, *report.figures])
    return 0


def _name(files: Sequence[Path]) -> None:
    for path in files:
        out.print(f"{path.suffix[1:].lower():5} {path}", markup=False, highlight=False, soft_wrap=True)
