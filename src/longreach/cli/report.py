"""`longreach report PATH...`: table, figure and page from finished runs."""

import argparse
import json
from pathlib import Path

from longreach.cli.console import out, say
from longreach.report import load_results, tables, write_report


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("report", help="table, figure and page from finished runs", description=__doc__)
    parser.add_argument("paths", type=Path, nargs="+", help="run folders, or folders of runs")
    parser.add_argument("--out", type=Path, help="folder of the report (default: PATH/report)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    results, unfinished = load_results(args.paths)
    for line in unfinished:
        say.print(line, markup=False, highlight=False)
    report = write_report(results, args.out or args.paths[0] / "report")
    paths = {"png": str(report.png), "html": str(report.html), "csv": str(report.csv)}
    if args.json:
        print(json.dumps({"title": report.title, "runs": len(results), "unfinished": len(unfinished), **paths}))
        return 0
    for table in tables(results, report.title, out.width):
        out.print(table)
    for name, path in paths.items():
        out.print(f"{name:5} {path}", markup=False, highlight=False, soft_wrap=True)
    return 0
