"""Parser of `longreach check`."""

import argparse


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "check",
        help="find mistakes of a task before training",
        description="Check samples, answers, prompts, coupled IDs and dependencies of a task, and look for shortcuts."
        "  Settings as --task.FIELD VALUE.  Exit code 2 if a check fails.",
    )
    parser.add_argument("task", help="a name from `longreach list task`, or the import path of a class of yours")
    parser.add_argument("--lengths", default="1..40", help="range of lengths (default: 1..40)")
    parser.add_argument("--samples", type=int, default=256, help="samples that are drawn (default: 256)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other samples")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb="longreach.cli.check.run", takes_settings=True)
