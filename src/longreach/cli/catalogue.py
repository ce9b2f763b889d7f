"""The catalogue of parts as rows: names, papers, settings and, for tasks, sparsity, levels and sampling speed."""

import inspect
import json
from typing import Any

from longreach.config import field_help, read_yaml
from longreach.config.registry import entries, kinds
from longreach.errors import BadInput
from longreach.runs import SECTIONS, shipped_presets, shipped_recipes
from longreach.tasks import Task
from longreach.version import PACKAGE

SHOWN = ("task", "ids", "encoding", "attention")
"""Kinds with a table in the docs."""


Rows = list[dict[str, Any]]


def catalogue_kinds() -> list[str]:
    """Return the kinds of the catalogue: those of the registry, and what recipes are made of."""
    return [*kinds(), "section", "recipe", "preset"]


def catalogue(only: str | None = None, with_settings: bool = True) -> dict[str, Rows]:
    """Return the entries of all kinds, or of one; settings take as long to collect as all else together."""
    return {kind: _rows(kind, with_settings) for kind in ([only] if only else catalogue_kinds())}


def _rows(kind: str, with_settings: bool) -> Rows:
    if kind in ("recipe", "preset"):
        files = shipped_recipes() if kind == "recipe" else shipped_presets()
        titles = {name: str(read_yaml(path).get("title", "")) for name, path in files.items()}
        return [{"name": name, "summary": title, "settings": []} for name, title in titles.items()]
    if kind == "section":
        rows: Rows = [{"name": name, "summary": summary(cls)} for name, cls in SECTIONS.items()]
        classes: list[type] = list(SECTIONS.values())
    else:
        rows, classes = _parts(kind)
    for row, cls in zip(rows, classes, strict=True) if with_settings else ():
        row["settings"] = [vars(field) for field in field_help(cls)]
    return rows


def measured_speeds() -> dict[str, float]:
    """Return tokens per second of samplers on one CPU core, by task; tasks that were not measured are missing."""
    for folder in (PACKAGE / "benchmarks", PACKAGE.parents[1] / "benchmarks" / "results"):
        if (folder / "tasks_cpu.json").is_file():
            rows = json.loads((folder / "tasks_cpu.json").read_text())["rows"]
            return {row["task"]: float(row["tokens_per_second"]) for row in rows}
    return {}


def _parts(kind: str) -> tuple[Rows, list[type]]:
    """Return the entries of a kind of the registry, without settings, and their classes."""
    speeds = measured_speeds() if kind == "task" else {}
    rows, classes = [], []
    for name, cls in sorted(entries(kind).items()):
        row: dict[str, Any] = {"name": name, "summary": summary(cls)}
        if kind in SHOWN:
            row["paper"] = getattr(cls, "paper", "")
        if issubclass(cls, Task):
            row |= _facts(cls())
            row["tokens_per_second"] = speeds.get(name)
        rows.append(row)
        classes.append(cls)
    return rows, classes


def summary(cls: type) -> str:
    """Return the first line of a class's docstring, and the lines after it up to the end of its last sentence."""
    first_paragraph = (inspect.getdoc(cls) or "").split("\n\n")[0].splitlines()
    shown: list[str] = []
    for line in first_paragraph:
        shown.append(line.strip())
        if line.rstrip().endswith("."):
            break
    return " ".join(shown)


def _facts(task: Task) -> dict[str, Any]:
    """Return the properties of a task with its default settings."""
    return {
        "k": _sparsity(task),
        "levels": [level.name for level in task.coupling_levels],
        "ids_by_rule": task.coupling_by_rule if task.coupling_levels else None,
    }


def _sparsity(task: Task) -> str:
    """Return the most tokens that an answer token needs, or how their number grows with length."""
    try:
        short, long = task.sparsity(20), task.sparsity(40)
    except BadInput:
        return ""
    return str(short) if short == long else f"grows: {short} at 20, {long} at 40"


def markdown() -> str:
    """Return the catalogue page of the docs."""
    lines = [
        "# The catalogue",
        "",
        "Written by `longreach list --markdown`. A task's k is the most earlier tokens that an",
    ]
    lines[-1] += (
        " answer token needs, at the default settings; levels are those of its coupled IDs, in brackets where no rule"
    )
    lines[-1] += (
        " gives the answer's; speed is that of its sampler on one CPU core (`longreach bench tasks`), in millions of"
    )
    lines[-1] += " tokens a second. No paper: ours."
    titles = {"task": "Tasks", "ids": "ID policies", "encoding": "Encodings", "attention": "Attention"}
    for kind in SHOWN:
        lines += ["", f"## {titles[kind]}", ""]
        columns = ["name", "what", "paper"] + (["k", "levels", "speed"] if kind == "task" else [])
        lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(_cells(row))} |" for row in catalogue(kind, with_settings=False)[kind]]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [f"`{row['name']}`", row["summary"].replace("|", "\\|"), row["paper"]]
    if "k" in row:
        levels = ", ".join(row["levels"])
        speed = row["tokens_per_second"]
        cells += [row["k"], f"({levels})" if row["ids_by_rule"] is False else levels]
        cells.append("" if speed is None else f"{speed / 1e6:.1f}")
    return cells
