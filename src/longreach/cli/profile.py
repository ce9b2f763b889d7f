"""`longreach run --profile`: begin to measure, and write and print what was found."""

import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import longreach.cli
from longreach.engine.ranks import processes
from longreach.errors import BadInput
from longreach.runs import commit_of_this_code
from longreach.runs.operators import Operators, first_rows, short_name
from longreach.runs.profile import PROFILE, Profile
from longreach.runs.profile_result import PhaseTime, ProfileResult, Section, TestTime, TrainingSpeed
from longreach.system.files import write_atomically
from longreach.system.imports import owns_the_process
from longreach.system.process_start import process_age

_ROWS = 15
"""Kernels or operators that a table names one by one."""


@dataclass(frozen=True)
class _Table:
    title: str
    columns: tuple[str, ...]
    """The first ones are text, the others numbers."""
    texts: int
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True)
class WrittenProfile:
    """A profile in its files, and what is printed of it."""

    facts: dict[str, Any]
    folder: Path
    tables: tuple[_Table, ...]

    def print(self, console: Console) -> None:
        """Print the tables."""
        for table in self.tables:
            console.print(_on_terminal(table, console.width))
            if table.note:
                console.print(table.note, highlight=False, soft_wrap=True)
        path = self.folder / "profile.md"
        console.print(f"{'profile':7} {path}", markup=False, highlight=False, soft_wrap=True)


def start_profile(steps: int | None) -> Profile:
    """Begin to measure, from the start of the process on if it was started for this command."""
    if processes() > 1:
        raise BadInput("--profile measures one process: start it without torchrun")
    if steps is not None and steps < 0:
        raise BadInput(f"--profile-steps must be 0 or more, got {steps}")
    now = time.perf_counter()
    age = process_age()
    if not owns_the_process():
        return Profile(now, "the call of the verb", steps)
    if age is None or now - age > longreach.cli.ENTERED:
        return Profile(longreach.cli.ENTERED, "the import of the command line", steps)
    return Profile(now - age, "the start of the process", steps)


def write_profile(profile: Profile, folder: Path, recipe: str, device: str) -> WrittenProfile:
    """Write profile.json and profile.md into a folder."""
    with profile.phase(PROFILE):
        from longreach.bench.machine import machine_name

        facts = {
            "recipe": recipe,
            "command": shlex.join(["longreach", *sys.argv[1:]]),
            "device": machine_name(device),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "commit": commit_of_this_code(),
            "date": date.today().isoformat(),
        }
    result = profile.result()
    tables = profile_tables(result)
    written = result.to_json(facts)
    write_atomically(folder / "profile.json", (json.dumps(written, indent=1) + "\n").encode())
    write_atomically(folder / "profile.md", _markdown(facts, tables).encode())
    return WrittenProfile(written, folder, tables)


def profile_tables(result: ProfileResult) -> tuple[_Table, ...]:
    """Return the tables of a profile."""
    first = result.seconds_to_first_step
    until = "" if first is None else f"; the first training step ended after {_seconds(first)} s"
    whole = f"{_seconds(result.seconds)} s since {result.since}{until}"
    found = [_phase_table("Where the time went", result.phases, whole)]
    several = len(result.sections) > 1
    for section in result.sections:
        name = _name(section)
        if several:
            found.append(_phase_table(f"{name}: phases", section.phases, ""))
        for training in section.training:
            found.append(_training_table(name, training))
            if training.operators is not None:
                found.append(_operator_table(name, training, training.operators))
        if section.tests:
            found.append(_test_table(name, section.tests))
    return tuple(found)


def _name(section: Section) -> str:
    first, more = section.runs[0] or "run", len(section.runs) - 1
    return f"{first} and {more} more" if more else first


def _phase_table(title: str, phases: Sequence[PhaseTime], note: str) -> _Table:
    rows = [[phase.name, _seconds(phase.seconds), f"{phase.share:.1%}"] for phase in phases]
    return _Table(title, ("phase", "seconds", "share"), 1, rows, note)


def _training_table(name: str, training: TrainingSpeed) -> _Table:
    columns = ("steps", "models", "median ms", "slowest ms", "steps/s", "samples/s", "tokens/s", "waiting for data")
    row = [str(training.steps), str(training.models)]
    row += [_number(value) for value in (training.median_milliseconds, training.slowest_milliseconds)]
    rates = (training.steps_per_second, training.samples_per_second, training.tokens_per_second)
    row += [_number(value) for value in rates]
    row.append("" if training.waiting_share is None else f"{training.waiting_share:.1%}")
    note = f"of {training.timed} steps: all but the first and those under the profiler"
    return _Table(f"{name}: training", columns, 0, [row], note)


def _operator_table(name: str, training: TrainingSpeed, found: Operators) -> _Table:
    rows = [
        [
            short_name(row.name),
            row.group,
            f"{row.calls:.4g}" if row.calls else "",
            f"{row.milliseconds:.3f}",
            f"{row.share:.1%}",
        ]
        for row in first_rows(found.rows, _ROWS)
    ]
    busy = training.busy_share
    if not found.rows:
        note = f"torch.profiler traced no {found.kind}"
    elif found.kind == "kernels":
        note = f"{found.milliseconds:.3f} ms of kernels a step, during {found.busy_milliseconds:.3f} ms of it"
        note += "" if busy is None else f": the GPU is busy for {busy:.0%} of a median step"
        if len(found.streams) > 1:
            note += f"; by stream {', '.join(f'{own:.3f}' for own in found.streams)} ms"
    else:
        note = f"self time; {found.milliseconds:.3f} ms a step under the profiler"
        note += "" if busy is None else f", {busy:.0%} of it in operators"
    title = f"{name}: {found.kind} of {found.steps} training steps"
    return _Table(title, (found.kind.removesuffix("s"), "kind", "calls", "ms", "share"), 2, rows, note)


def _test_table(name: str, tests: Sequence[TestTime]) -> _Table:
    rows = [
        ["all" if test.length is None else str(test.length), _seconds(test.one_pass), _seconds(test.free_running)]
        for test in tests
    ]
    return _Table(f"{name}: seconds of the test", ("length", "one pass", "free-running"), 1, rows)


def _on_terminal(table: _Table, width: int) -> Table:
    shown = Table(title=table.title, title_justify="left", box=None)
    others = sum(
        2 + max((len(row[number]) for row in table.rows), default=0) for number in range(1, len(table.columns))
    )
    room = max(20, width - others - 2)
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if number < table.texts else "right")
    for first, *rest in table.rows:
        shown.add_row(first if len(first) <= room else f"{first[: room - 1]}…", *rest)
    return shown


def _markdown(facts: dict[str, Any], tables: Sequence[_Table]) -> str:
    lines = [
        f"# Profile of {facts['recipe']}",
        "",
        "```console",
        f"$ {facts['command']}",
        "```",
        "",
        f"{facts['device']}, torch {facts['torch']}, {facts['threads']} threads, commit {facts['commit'] or 'unknown'},"
        f" {facts['date']}.",
    ]
    for table in tables:
        align = ["---" if number < table.texts else "---:" for number in range(len(table.columns))]
        lines += ["", f"## {table.title}", ""]
        for row in (table.columns, align, *table.rows):
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |")
        lines += ["", f"{table.note[0].upper()}{table.note[1:]}."] if table.note else []
    return "\n".join(lines) + "\n"


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
