"""`longreach bench drawing`: how much slower training on a task in plain Python is than on a vectorised one."""

import argparse
import json
from dataclasses import asdict
from datetime import date

import torch
from rich.table import Table

from longreach.bench import Workload, machine_name, on_gpu, time_drawing
from longreach.cli.parsers.bench import DRAWING_SHAPES
from longreach.engine.drawing import count_workers
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.runs import choose_device, commit_of_this_code
from longreach.terminal.console import out


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.seconds <= 0:
        raise BadInput(f"--seconds must be above 0, got {args.seconds:g}")
    workers = count_workers(ExecutionConfig(workers=args.workers))
    device = choose_device(args.device)
    workload = Workload.parse(args.shape or DRAWING_SHAPES[0 if on_gpu(device) else 1])
    rows = time_drawing(workload, workers, device, args.seconds)
    ratio = rows[1].steps_per_second / rows[0].steps_per_second
    if args.json:
        facts = {
            "date": date.today().isoformat(),
            "commit": commit_of_this_code(),
            "torch": torch.__version__,
            "machine": machine_name(device),
            "shape": str(workload),
            "rows": [asdict(row) for row in rows],
            "ratio": ratio,
        }
        print(json.dumps(facts))
        return 0
    title = f"{workload}: {machine_name(device)}, torch {torch.__version__}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("sampler")
    for column in ("workers", "steps/s", "waiting"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(row.sampler, str(row.workers), f"{row.steps_per_second:.1f}", f"{row.waiting:.0%}")
    out.print(table)
    out.print(f"plain Python reaches {ratio:.0%} of the vectorised speed", highlight=False)
    return 0
