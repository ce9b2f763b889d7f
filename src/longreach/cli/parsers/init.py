"""Parser of `longreach init`."""

import argparse
from pathlib import Path

KINDS = {
    "task": "a task that draws batches of tensors",
    "example": "a task given by examples, in plain Python",
    "program": "a task written as a program with cursors",
    "recipe": "a recipe for `longreach run`",
}
TASK = "repeat_copy"
"""Task of a recipe if none is named."""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    kinds = "; ".join(f"{kind}: {about}" for kind, about in KINDS.items())
    parser = verbs.add_parser(
        "init",
        help="write a template: a task of your own, or a recipe",
        description=f"Write a commented template that runs at once, and print the next commands.  {kinds}.",
    )
    parser.add_argument("kind", help=", ".join(KINDS))
    parser.add_argument("name", help="such as my_copy: the file is my_copy.py, the class MyCopy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file (default: NAME.py or NAME.yaml)")
    parser.add_argument("--task", help=f"task of a recipe: a name, or the path of a class of yours (default: {TASK})")
    parser.set_defaults(verb="longreach.cli.init.run", takes_settings=False)
