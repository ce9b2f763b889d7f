"""The flag `--trust` of the verbs that read run folders."""

import argparse


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="let a run folder name classes of the working folder, whoever started the run",
    )
