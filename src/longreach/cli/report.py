"""`longreach report PATH...`: table, figures and page from finished runs, or from probes."""

import argparse
import json
from pathlib import Path

from longreach.cli.console import out, say
from longreach.cli.probe_report_table import probe_table
from longreach.errors import BadInput
from longreach.reports import find_probes, load_results, tables, write_probe_report, write_report
from longreach.runs import find_runs


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "report", help="table, figures and page from finished runs or probes", description=__doc__
    )
    parser.add_argument("paths", type=Path, nargs="+", help="folders of runs, or folders that `longreach probe` wrote")
    parser.add_argument("--out", type=Path, help="folder of the report (default: PATH/report)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    folder = args.out or args.paths[0] / "report"
    probes = find_probes(args.paths)
    if probes:
        if any(run for path in args.paths for run in find_runs(path)):
            raise BadInput(f"{', '.join(map(str, args.paths))} hold both runs and probes: report on one kind at a time")
        return _on_probes(probes, folder, args.json)
    results, unfinished = load_results(args.paths)
    for line in unfinished:
        say.print(line, markup=False, highlight=False)
    report = write_report(results, folder)
    paths = {"png": str(report.png), "html": str(report.html), "csv": str(report.csv)}
    if args.json:
        print(json.dumps({"title": report.title, "runs": len(results), "unfinished": len(unfinished), **paths}))
        return 0
    for table in tables(results, report.title, out.width):
        out.print(table)
    _name(paths)
    return 0


def _on_probes(probes: list[Path], folder: Path, as_json: bool) -> int:
    report = write_probe_report(probes, folder)
    paths = {"html": str(report.html), "csv": str(report.csv), "json": str(report.json)}
    if as_json:
        print(json.dumps({"texts": len(probes), **paths, "figures": [str(path) for path in report.figures]}))
        return 0
    out.print(probe_table(report.rows))
    _name(paths | {"png": ", ".join(path.name for path in report.figures)})
    return 0


def _name(paths: dict[str, str]) -> None:
    for name, path in paths.items():
        out.print(f"{name:5} {path}", markup=False, highlight=False, soft_wrap=True)
