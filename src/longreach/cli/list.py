"""`longreach list [KIND]`: list tasks, ID policies, encodings, attentions and recipes."""

import argparse
import json
from typing import Any

from rich.table import Table
from rich.text import Text

from longreach.cli.catalogue import catalogue, catalogue_kinds, markdown
from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.terminal.console import out


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.markdown:
        print(markdown(), end="")
        return 0
    if args.kind not in (None, *catalogue_kinds()):
        raise BadInput(f"unknown kind {args.kind!r}{nearest(args.kind, catalogue_kinds())}")
    shown = catalogue(args.kind, with_settings=args.json or args.kind is not None)
    if args.json:
        print(json.dumps(shown))
        return 0
    for kind, rows in shown.items():
        table = Table(title=kind, title_justify="left", show_header=False, box=None, pad_edge=False)
        for row in rows:
            table.add_row(Text(row["name"], style="bold"), row["summary"])
            about = _about(row)
            if about:
                table.add_row("", Text(about, style="dim"))
            for field in row["settings"] if args.kind else []:
                table.add_row(f"  {field['name']}", f"{field['type']} = {field['default']}.  {field['help']}")
        out.print(table)
        out.print()
    return 0


def _about(row: dict[str, Any]) -> str:
    """Return the paper of an entry and, for a task, k, levels and speed."""
    facts = [row.get("paper", "")]
    if "k" in row:
        facts += [f"k {row['k']}" if row["k"] else "", f"levels {', '.join(row['levels'])}" if row["levels"] else ""]
        speed = row["tokens_per_second"]
        facts.append("" if speed is None else f"{speed / 1e6:.1f} M tokens/s")
    return "; ".join(fact for fact in facts if fact)
