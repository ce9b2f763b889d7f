"""`longreach list [KIND]`: what there is to choose from."""

import argparse
import inspect
import json
from typing import Any

from rich.markup import escape
from rich.table import Table

from longreach.cli.console import out
from longreach.config import field_help, read_yaml
from longreach.errors import BadInput
from longreach.registry import entries, kinds, nearest
from longreach.runs import shipped_recipes


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("list", help="tasks, ID policies, encodings, attentions, recipes", description=__doc__)
    parser.add_argument("kind", nargs="?", help="one kind only, with the settings of each entry")
    parser.add_argument("--json", action="store_true", help="print JSON: kind -> list of entries")
    parser.set_defaults(verb=run, takes_settings=False)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    catalogue = {**{kind: _parts(kind) for kind in kinds()}, "recipe": _recipes()}
    if args.kind is not None:
        if args.kind not in catalogue:
            raise BadInput(f"unknown kind {args.kind!r}{nearest(args.kind, catalogue)}")
        catalogue = {args.kind: catalogue[args.kind]}
    if args.json:
        print(json.dumps(catalogue))
        return 0
    for kind, rows in catalogue.items():
        table = Table(title=kind, title_justify="left", show_header=False, box=None, pad_edge=False)
        for row in rows:
            table.add_row(f"[bold]{escape(row['name'])}[/bold]", escape(row["summary"]))
            for field in row["settings"] if args.kind else []:
                table.add_row(f"  {field['name']}", escape(f"{field['type']} = {field['default']}.  {field['help']}"))
        out.print(table)
        out.print()
    return 0


def _parts(kind: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "summary": (inspect.getdoc(cls) or "").split("\n")[0],
            "settings": [vars(field) for field in field_help(cls)],
        }
        for name, cls in sorted(entries(kind).items())
    ]


def _recipes() -> list[dict[str, Any]]:
    return [
        {"name": name, "summary": str(read_yaml(path).get("title", "")), "settings": []}
        for name, path in shipped_recipes().items()
    ]
