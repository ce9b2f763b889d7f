"""Parser of `longreach diagnose`."""

import argparse
from pathlib import Path

from longreach.cli.trust import add_trust


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "diagnose",
        help="what longer lengths will need, and what training covers of it",
        description="How many tokens an answer needs, how far apart they are, which position IDs let training cover a"
        " target length, and for a trained model how its errors will grow.  Estimates, each with a 95% interval;"
        " never a certificate.  Settings of a task as --task.FIELD VALUE.",
    )
    parser.add_argument(
        "source", nargs="?", help="a task's name, a run folder, or a .jsonl file with tokens and answer in each line"
    )
    parser.add_argument("--train", help="training lengths, such as 1..40 (a run: its own; a file: all of its lengths)")
    parser.add_argument("--target", type=int, help="the length in question (default: ten times the longest trained)")
    parser.add_argument("--samples", type=int, default=256, help="samples at a length (default: 256)")
    parser.add_argument("--steps", type=int, help="a file: steps to learn it in (default: 1500)")
    parser.add_argument("--seed", type=int, default=0, help="of samples, and of what is learnt from a file")
    parser.add_argument("--calibrate", type=int, metavar="N", help="instead: how often it is right on N planted tasks")
    parser.add_argument("--out", type=Path, help="a folder for diagnosis.json and a picture")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    add_trust(parser)
    parser.set_defaults(verb="longreach.cli.diagnose.run", takes_settings=True)
