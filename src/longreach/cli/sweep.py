"""`longreach sweep run|status FILE`: many runs, on one machine or on a cluster; `fetch` gets them from storage."""

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from longreach.cli.run import INTERRUPTED
from longreach.errors import BadInput
from longreach.runs import choose_device
from longreach.sweeps import (
    LocalBackend,
    Resources,
    SweepPlan,
    check_plan,
    estimate,
    fetch,
    is_url,
    make_plan,
    open_storage,
    read_states,
)
from longreach.terminal.console import out
from longreach.terminal.durations import duration
from longreach.terminal.sweep_table import count_states, status_table, to_json
from longreach.verbs.sweeping import (
    check_backend,
    device_here,
    drive_plan,
    make_backend,
    open_results,
    resources_on,
    tell_on_stderr,
)


def run(args: argparse.Namespace, settings: list[str]) -> int:
    check_backend(args.backend, args.address, args.workers)
    plan = make_plan(args.file)
    args.device = args.device or plan.device
    with open_results(args.file, args.out, args.scratch) as (folder, mirror):
        resources = resources_on(plan.file.resources, args.device)
        tell = (lambda done, total: None) if args.json else _tell_checks
        check_plan(plan, folder, tell, device_here(args.backend, resources))
        if args.dry_run:
            return _dry_run(args, plan, folder, resources)
        backend = partial(make_backend, args.backend, resources, args.address, args.workers)
        if not drive_plan(plan, folder, mirror, backend, args.retry_failed, args.json, tell_on_stderr):
            command = shlex.join(["longreach", *sys.argv[1:]])
            tell_on_stderr(
                f"interrupted; everything is saved, except where a run says otherwise.  To go on:  {command}"
            )
            return INTERRUPTED
        failed = _show_status(args, plan, folder)
    if failed and not args.json:
        flags = [flag for flag in sys.argv[1:] if flag != "--retry-failed"]
        tell_on_stderr(f"{failed} failed.  To try again:  {shlex.join(['longreach', *flags, '--retry-failed'])}")
    return 1 if failed else 0


def status(args: argparse.Namespace, settings: list[str]) -> int:
    plan = make_plan(args.file)
    with open_results(args.file, args.out) as (folder, _):
        _show_status(args, plan, folder)
    return 0


def fetch_runs(args: argparse.Namespace, settings: list[str]) -> int:
    if not is_url(args.url):
        raise BadInput(f"{args.url} is not a URL: what lies in a folder can be read there")
    count = fetch(open_storage(args.url), args.folder, args.checkpoints)
    out.print(f"{count} runs in {args.folder}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _tell_checks(done: int, total: int) -> None:
    """Checking takes about as long as making a model and a few samples; a large sweep has many to make."""
    if done and done % 20 == 0:
        tell_on_stderr(f"checked {done} of {total} configurations")


def _place(args: argparse.Namespace, folder: Path) -> str:
    """What the user calls the folder."""
    return args.out if args.out and is_url(args.out) else str(folder)


def _dry_run(args: argparse.Namespace, plan: SweepPlan, folder: Path, resources: Resources) -> int:
    states = read_states(plan, folder)
    guess = estimate(plan, folder, choose_device("cpu" if resources.gpus == 0 else args.device))
    workers = args.workers
    if args.backend == "local":
        workers = len(LocalBackend(resources, args.workers).devices)
    counts = count_states(states)
    if args.json:
        facts = {**asdict(guess), "workers": workers}
        print(json.dumps({**to_json(plan, _place(args, folder), states), "estimate": facts}))
        return 0
    for state in states:
        out.print(f"{state.state:9} {state.name}", markup=False, highlight=False, soft_wrap=True)
    left = len(states) - counts["finished"]
    stacked = f", as computations: {guess.computations}" if guess.computations < left else ""
    out.print(f"{len(states)} runs, {counts['finished']} finished, {left} to do{stacked}", highlight=False)
    if left:
        at_once = min(workers or 0, guess.computations)
        shared = f", {duration(guess.seconds / at_once)} by {at_once} at a time" if at_once else ""
        out.print(f"about {duration(guess.seconds)} one after the other{shared}", highlight=False)
        out.print(f"based on {guess.basis}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _show_status(args: argparse.Namespace, plan: SweepPlan, folder: Path) -> int:
    """Print where every run stands; the answer is the number that failed."""
    states = read_states(plan, folder)
    place = _place(args, folder)
    if args.json:
        print(json.dumps(to_json(plan, place, states)))
    else:
        out.print(status_table(plan, states))
        if count_states(states)["finished"]:
            fetched = f"longreach sweep fetch {place} DEST && longreach report DEST"
            out.print(
                fetched if is_url(place) else f"longreach report {place}", markup=False, highlight=False, soft_wrap=True
            )
    return count_states(states)["failed"]
