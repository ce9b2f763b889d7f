"""Parser of `longreach report`."""

import argparse
from pathlib import Path


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "report",
        help="table, figures and page from runs, files of scores, probes or measured reach",
        description="Writes a folder with table, figures and page from finished runs, files of scores or probes.  With "
        "--out FILE it writes one file: .html is the page, .pdf, .svg and .png are one figure for a paper.",
    )
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        help="folders of runs, files of scores (.csv, .json), or folders of `longreach probe` or `longreach reach`",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the report, or one .html, .pdf, .svg or .png file (default: PATH/report; of a file NAME.csv "
        "the folder NAME-report in the working folder)",
    )
    parser.add_argument(
        "--figure",
        metavar="KIND",
        help="with a .pdf, .svg or .png: reach (default), heatmap, errors, mass, training, coverage or losses",
    )
    parser.add_argument("--size", help="width of the figure: column (3.25 inches) or page (6.75 inches; default)")
    parser.add_argument("--metric", help="metric of reach and heatmap (default: that of the report)")
    parser.add_argument(
        "--panels",
        metavar="FIELD",
        help="a panel for each value, in reach and heatmap: variant, k, hops, model.width, ...",
    )
    parser.add_argument("--x", metavar="FIELD", help="field along the heat map (default: length)")
    parser.add_argument("--y", metavar="FIELD", help="field down the heat map (default: variant)")
    parser.add_argument("--scale", help="axis of lengths: log or linear (default: log if they differ by over 4 times)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb="longreach.cli.report.run", takes_settings=False)
