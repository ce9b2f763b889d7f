"""Parser of `longreach show`."""

import argparse


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "show",
        help="one sample of a task",
        description="One sample: tokens, answer, coupled IDs, dependencies.  Settings as --task.FIELD VALUE.",
    )
    parser.add_argument("task", help="a name from `longreach list task`, or the import path of a class of yours")
    parser.add_argument("--length", type=int, required=True, help="the task's length")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another sample")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb="longreach.cli.show.run", takes_settings=True)
