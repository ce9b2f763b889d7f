"""Parser of `longreach theory`."""

import argparse
from pathlib import Path

from longreach.cli.facts import facts
from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "theory",
        help="compute the figures of the theory, or compare it with trained models",
        description="What the theory says, computed, and beside what trained models do.",
    )
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    reproduce = parts.add_parser(
        "reproduce",
        help="the figures of the theory",
        description="Bounds, certificates, counterexamples and fitted heads: our figures beside those announced.",
    )
    reproduce.add_argument("--only", help=f"some figures only, of {', '.join(facts()['figures'])}")
    reproduce.add_argument("--out", type=Path, help="a folder for tables and pictures")
    reproduce.add_argument("--json", action="store_true", help="print JSON instead of a table")
    reproduce.set_defaults(verb="longreach.cli.theory.run", takes_settings=False)
    _add_compare(parts)


def _add_compare(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parts.add_parser(
        "compare",
        help="errors of trained models beside those predicted",
        description="Finished runs on planted tasks, beside heads of the theory whose one free number, the margin, is "
        "fixed by the errors at one length.",
    )
    parser.add_argument("paths", type=Path, nargs="+", help="run folders, or folders of runs")
    parser.add_argument("--at", type=int, help="the tested length that fixes the margin (default: the longest trained)")
    parser.add_argument(
        "--by", choices=["error", "loss"], default="error", help="fix it by the last training losses instead of errors"
    )
    parser.add_argument("--out", type=Path, help="a folder for the table and the picture")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.compare.run", takes_settings=False)
