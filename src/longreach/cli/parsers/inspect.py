"""Parser of `longreach inspect`."""

import argparse
from pathlib import Path

from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "inspect",
        help="look inside one generation of a trained model",
        description="`longreach inspect RUN`: one generation of a trained model, step by step: tokens, dependencies"
        " and, for each level of\nIDs, the tokens that share an ID and the heads that attend to them."
        "  `--out FILE.html` writes a page of several.",
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--length", type=int, help="the samples' length (default: the longest of training)")
    parser.add_argument("--seed", type=int, help="another seed, other samples (default: 0)")
    parser.add_argument("--samples", type=int, metavar="N", help="samples of an .html page, 1 to 100 (default: 6)")
    parser.add_argument(
        "--prompt", action="append", help="a prompt of yours instead of a sample; for a page it may be repeated"
    )
    parser.add_argument("--step", type=int, help="details of this step, counted from 0; a page opens at it")
    parser.add_argument(
        "--out",
        type=Path,
        help="write a page on which to step through the answers into this .html file,"
        " or draw the attention of all heads into this .png file",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.inspect.run", takes_settings=False)
