"""Parser of `longreach dataset`."""

import argparse
from pathlib import Path


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "dataset",
        help="samples of a task for other programs",
        description="Write samples as text, tokens, masks, coupled IDs and dependencies.  No run of longreach trains or"
        " tests on this stream of samples.  Settings as --task.FIELD VALUE.",
    )
    parser.add_argument("task", help="a name from `longreach list task`, or the import path of a class of yours")
    parser.add_argument(
        "--lengths",
        required=True,
        help="a range such as 2..20, without lengths the task lacks, or a list: 10,20,40:80:10",
    )
    parser.add_argument("--samples", type=int, default=1000, help="samples of each length (default: 1000)")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="a .jsonl or .parquet file, or a folder for a .jsonl file of each length; must not exist",
    )
    parser.add_argument(
        "--form",
        choices=("aligned", "published"),
        default="aligned",
        help="form of the coupled IDs in the columns ids_LEVEL (default: aligned)",
    )
    parser.add_argument("--no-dependencies", action="store_true", help="leave the large column dependencies out")
    parser.add_argument(
        "--lm-eval", action="store_true", help="make the folder a group of tasks for lm_eval, too: one for each length"
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, other samples")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb="longreach.cli.dataset.run", takes_settings=True)
