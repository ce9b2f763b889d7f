"""Parser of `longreach inspect`."""

import argparse
from pathlib import Path

from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "inspect",
        help="look inside one generation of a trained model",
        description="`longreach inspect RUN`: one generation of a trained model, step by step: tokens, dependencies"
        " and, for each level of\nIDs, the tokens that share an ID and the heads that attend to them.",
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--length", type=int, help="the sample's length (default: the longest of training)")
    parser.add_argument("--seed", type=int, help="another seed, another sample (default: 0)")
    parser.add_argument("--prompt", help="a prompt of yours instead of a sample")
    parser.add_argument("--step", type=int, help="details of this step, counted from 0")
    parser.add_argument("--out", type=Path, help="draw the attention of all heads into this .png file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.inspect.run", takes_settings=False)
