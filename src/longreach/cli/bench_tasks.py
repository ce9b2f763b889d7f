"""`longreach bench tasks`: how fast the samplers are on this machine."""

import argparse
import json
from dataclasses import asdict
from datetime import date

import torch
from rich.table import Table

from longreach.bench import machine_name, time_tasks
from longreach.config.registry import entries, nearest
from longreach.errors import BadInput
from longreach.runs import choose_device, commit_of_this_code
from longreach.system.files import write_atomically
from longreach.terminal.console import out


def run(args: argparse.Namespace, settings: list[str]) -> int:
    known = {name: task for name, task in entries("task").items() if not task().reads_files}
    names = sorted(known) if args.only is None else args.only.split(",")
    for name in names:
        if name not in known:
            raise BadInput(f"unknown task {name!r}{nearest(name, known)}")
    for flag in ("tokens", "batch", "repeats"):
        if getattr(args, flag) < 1:
            raise BadInput(f"--{flag} must be at least 1, got {getattr(args, flag)}")
    device = choose_device(args.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = list(time_tasks(names, device, args.batch, args.repeats, args.tokens))
        machine = machine_name(device)
    finally:
        torch.set_num_threads(threads)
    facts = {
        "date": date.today().isoformat(),
        "commit": commit_of_this_code(),
        "torch": torch.__version__,
        "machine": machine,
        "batch": args.batch,
        "repeats": args.repeats,
        "rows": [asdict(row) for row in rows],
    }
    if args.out is not None:
        write_atomically(args.out, (json.dumps(facts, indent=1) + "\n").encode())
    if args.json:
        print(json.dumps(facts))
        return 0
    table = Table(
        title=f"{machine}, torch {torch.__version__}, batches of {args.batch}", title_justify="left", box=None
    )
    table.add_column("task")
    for column in ("length", "tokens", "M tokens/s", "slowest", "fastest"):
        table.add_column(column, justify="right")
    for row in rows:
        rates = (f"{rate / 1e6:.1f}" for rate in (row.tokens_per_second, row.slowest, row.fastest))
        table.add_row(row.task, str(row.length), str(row.tokens), *rates)
    out.print(table)
    return 0
