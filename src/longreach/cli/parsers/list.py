"""Parser of `longreach list`."""

import argparse


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "list",
        help="tasks, ID policies, encodings, attentions, sections of a recipe, recipes",
        description="`longreach list [KIND]`: list tasks, ID policies, encodings, attentions and recipes.",
    )
    parser.add_argument("kind", nargs="?", help="one kind only, with the settings of each entry")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    parser.add_argument("--json", action="store_true", help="print JSON: kind -> list of entries")
    parser.set_defaults(verb="longreach.cli.list.run", takes_settings=False)
