"""Parser of `longreach report`."""

import argparse
from pathlib import Path


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "report",
        help="table, figures and page from finished runs or probes",
        description="`longreach report PATH...`: table, figures and page from finished runs, or from probes.",
    )
    parser.add_argument("paths", type=Path, nargs="+", help="folders of runs, or folders that `longreach probe` wrote")
    parser.add_argument("--out", type=Path, help="folder of the report (default: PATH/report)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb="longreach.cli.report.run", takes_settings=False)
