"""`longreach report PATH...`: table, figures and page from runs, files of scores or probes."""

import argparse
import json
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
        paths = {report.suffix[1:].lower(): str(report)}
        if args.json:
            print(json.dumps({**counts, **paths}))
        else:
            _name(paths)
        return 0
    paths = {"png": str(report.png), "html": str(report.html), "csv": str(report.csv)}
    if args.json:
        print(json.dumps({"title": report.title, **counts, **paths}))
        return 0
    for table in tables(results, report.title, out.width):
        out.print(table)
    _name(paths)
    return 0


def _on_probes(report: ProbeReport, texts: int, as_json: bool) -> int:
    paths = {"html": str(report.html), "csv": str(report.csv), "json": str(report.json)}
    if as_json:
        print(json.dumps({"texts": texts, **paths, "figures": [str(path) for path in report.figures]}))
        return 0
    out.print(probe_table(report.rows))
    _name(paths | {"png": ", ".join(path.name for path in report.figures)})
    return 0


def _name(paths: dict[str, str]) -> None:
    for name, path in paths.items():
        out.print(f"{name:5} {path}", markup=False, highlight=False, soft_wrap=True)
