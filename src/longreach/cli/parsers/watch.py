"""Parser of `longreach watch`."""

import argparse
from pathlib import Path


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "watch",
        help="runs and sweeps while they run, in the terminal or as a local page",
        description="Shows the runs below a folder: state, step, rate, time left, loss and scores so far.  It reads and"
        " never writes.  Where stdout is no terminal it prints one table.",
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs"), metavar="DIR", help="folder of runs (default: runs)"
    )
    parser.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="seconds between two looks (default: 2)"
    )
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument("--json", action="store_true", help="print one look as JSON, with every run, and end")
    parser.add_argument(
        "--serve", action="store_true", help="serve a page to browsers of this machine; its address is on stderr"
    )
    parser.add_argument("--port", type=int, metavar="N", help="port of --serve (default: a free one)")
    parser.set_defaults(verb="longreach.cli.watch.run", takes_settings=False)
