"""The table of a sweep: every run with its progress."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from longreach.sweeps import Attempts, RunState, SweepPlan, read_states
from longreach.terminal.console import say
from longreach.terminal.durations import duration
from longreach.terminal.progress import LONG

_STYLES = {"finished": "green", "running": "cyan", "failed": "red", "waiting": "dim"}
_ROWS = 30
"""Of the live table: what runs and what failed comes first."""
_LOOKS = (20.0, 60.0, 240.0)
"""Seconds after which the time left is estimated, until a warning was told."""


def count_states(states: Sequence[RunState]) -> Counter[str]:
    return Counter(state.state for state in states)


def status_table(plan: SweepPlan, states: Sequence[RunState]) -> Table:
    counts = count_states(states)
    summary = ", ".join(f"{counts[name]} {name}" for name in _STYLES if counts[name])
    table = Table(title=Text(plan.file.title, style="table.title"), caption=f"{len(states)} runs: {summary}")
    for column in ("run", "state", "progress", "failures"):
        table.add_column(column, overflow="fold")
    for state in states:
        attempts = state.attempts if state.state != "finished" else Attempts()
        failures = f"{attempts.failures}: {attempts.reason}" if attempts.failures else ""
        label = Text(state.state, style=_STYLES[state.state])
        table.add_row(Text(state.name), label, Text(_progress(state)), Text(failures))
    return table


def _progress(state: RunState) -> str:
    """Also of a run that waits: it will go on from about there."""
    progress = state.progress
    if progress is None or state.state == "finished" or progress.phase == "done":
        return ""
    return f"{progress.phase} {progress.done}/{progress.total} {progress.note}"


@contextmanager
def live_table(
    plan: SweepPlan, folder: Path, quiet: bool, look: Callable[[], None] = lambda: None
) -> Iterator[Callable[[], None]]:
    """A function that draws the table anew; where there is no terminal, it draws nothing.  Looking at thousands of
    folders takes a while, and longer where `look` must bring them up to date: a tenth of the time may go into it, and a
    second passes between two tables."""
    if quiet or not say.is_terminal:
        yield lambda: None
        return

    def draw() -> Group:
        look()
        states = read_states(plan, folder)
        urgent = sorted(states, key=lambda state: ("running", "failed", "waiting", "finished").index(state.state))
        done = sum(state.state == "finished" for state in states)
        bar = ProgressBar(total=len(states), completed=done, width=60)
        more = f"{len(states)} runs, {done} finished; `longreach sweep status` shows all"
        return Group(status_table(plan, urgent[:_ROWS]), bar, Text(more if len(states) > _ROWS else ""))

    rest_until = 0.0
    with Live(draw(), console=say, auto_refresh=False, transient=True) as live:

        def show() -> None:
            nonlocal rest_until
            start = time.monotonic()
            if start >= rest_until:
                live.update(draw(), refresh=True)
                rest_until = time.monotonic() + max(1.0, 9 * (time.monotonic() - start))

        yield show


def warning_if_long(plan: SweepPlan, folder: Path, tell: Callable[[str], None]) -> Callable[[], None]:
    """Return a function that, called again and again, tells once if the sweep will take long by its pace so far."""
    started, before = time.monotonic(), _finished_share(read_states(plan, folder))
    looks = list(_LOOKS)

    def look() -> None:
        elapsed = time.monotonic() - started
        if not looks or elapsed < looks[0]:
            return
        looks.pop(0)
        states = read_states(plan, folder)
        done = _finished_share(states)
        if done <= before:
            return
        open_runs = sum(state.state != "failed" for state in states)
        left = (open_runs - done) * elapsed / (done - before)
        if left > LONG:
            looks.clear()
            tell(f"warning: this sweep will take about {duration(left)} more (an estimate); Ctrl-C saves and stops it")

    return look


def _finished_share(states: Sequence[RunState]) -> float:
    """Return the finished runs, with begun ones counted in part."""
    share = 0.0
    for state in states:
        if state.state == "finished":
            share += 1.0
        elif state.state != "failed" and state.progress is not None and state.progress.phase == "train":
            share += state.progress.done / max(1, state.progress.total)
    return share


def to_json(plan: SweepPlan, folder: str, states: Sequence[RunState]) -> dict[str, Any]:
    counts = count_states(states)
    return {
        "title": plan.file.title,
        "folder": folder,
        "counts": {name: counts[name] for name in _STYLES},
        "runs": [
            {
                "name": state.name,
                "state": state.state,
                "failures": state.attempts.failures,
                "reason": state.attempts.reason,
                "progress": None if state.progress is None else asdict(state.progress),
            }
            for state in states
        ],
    }
