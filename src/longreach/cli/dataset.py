"""`longreach dataset TASK`: samples of a task for other programs."""

import argparse
import json
from dataclasses import asdict
from functools import partial

from longreach.cli.flags import task_settings
from longreach.config import build_part
from longreach.tasks import Task
from longreach.terminal.console import out, say
from longreach.terminal.progress import watch
from longreach.verbs.writing import write_dataset


def run(args: argparse.Namespace, settings: list[str]) -> int:
    task = build_part(Task, task_settings(args.task, settings), "task")
    show = partial(watch, say, quiet=args.json)
    needs = not args.no_dependencies
    written = write_dataset(task, args.lengths, args.out, args.samples, args.form, needs, args.seed, show, args.lm_eval)
    if args.json:
        print(json.dumps(asdict(written)))
    else:
        out.print(str(written), markup=False, highlight=False, soft_wrap=True)
    return 0
