"""Parser of `longreach results`."""

import argparse
from pathlib import Path


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "results",
        help="thousands of runs as one table",
        description="Lists runs with their state and the settings in which they differ.  --pivot shows rates instead; "
        "--compare says which of two variants is better.  --out writes what is shown, or a row for each run and cell.",
    )
    parser.add_argument(
        "paths",
        type=Path,
        nargs="*",
        help="run folders or folders of runs (default: runs); with --compare also files of scores",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="keep what fulfils it, such as variant=aligned or 'length>=100' (= != >= <= > <); may be repeated",
    )
    parser.add_argument("--pivot", metavar="COLUMN", help="a column for each of its values, such as length")
    parser.add_argument("--rows", metavar="COLUMNS", help="with --pivot: a row for each combination (default: variant)")
    parser.add_argument(
        "--value", metavar="METRIC", help="with --pivot, --compare: whose rate is shown (default: token_em_free)"
    )
    parser.add_argument(
        "--summary", help="with --pivot: what several runs become: median, worst or mean (default: median)"
    )
    parser.add_argument(
        "--compare",
        metavar="A,B",
        help="the difference of two variants by length, seed by seed, with a 95%% interval; also of files of scores",
    )
    parser.add_argument("--limit", type=int, help="lines shown; 0 shows all (default: 40)")
    parser.add_argument("--out", type=Path, help="write a .parquet, .csv, .json, .tex or .md file")
    parser.add_argument("--json", action="store_true", help="print JSON: a list with an object for each line")
    parser.set_defaults(verb="longreach.cli.results.run", takes_settings=False)
