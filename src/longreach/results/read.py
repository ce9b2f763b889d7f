"""One run folder as one row of the index.  What is damaged is named in its row, and breaks nothing else."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from longreach.errors import BadInput
from longreach.system.files import parse_json, read_json

CELL = pa.struct(
    [
        ("overrides", pa.string()),
        ("length", pa.int64()),
        ("metric", pa.string()),
        ("hits", pa.int64()),
        ("samples", pa.int64()),
    ]
)
_TAIL = 65536
"""Bytes at the end of a file of metrics, enough for its last line."""


def read_run(folder: Path) -> dict[str, Any]:
    """State, origin, settings and scores of a run."""
    # brings torch, which a table that is known already need not wait for
    from longreach.config import flatten, read_yaml, upgrade_recorded

    row: dict[str, Any] = {"state": "unfinished", "problem": "", "settings": "{}", "scores": [None]}
    row |= {"recipe": "", "variant": "", "seed": None, "step": None}
    try:
        settings = flatten(upgrade_recorded(read_yaml(folder / "config.yaml")))
        row["settings"] = json.dumps(settings)
        row |= _origin(folder / "run.json")
        if (folder / "scores.json").exists():
            steps = settings.get("train.steps")
            row |= {"state": "finished", "step": steps if isinstance(steps, int) else None}
            row["scores"] = _cells(folder / "scores.json")
            return row
        row["step"] = _last_step(folder / "metrics.jsonl")
        if (folder / "attempts.json").exists():  # of a sweep
            row |= {"state": "failed", "problem": _reason(folder / "attempts.json")}
    except (BadInput, OSError) as error:
        row |= {"state": "damaged", "problem": str(error)}
    return row


def _origin(path: Path) -> dict[str, Any]:
    return read_json(
        path,
        lambda origin: {name: kind(origin[name]) for name, kind in (("recipe", str), ("variant", str), ("seed", int))},
    )


def _reason(path: Path) -> str:
    return read_json(path, lambda attempts: str(attempts["reason"]))


def _cells(path: Path) -> list[dict[str, Any] | None]:
    return [*read_json(path, _checked_cells)] or [None]


def _checked_cells(rows: Any) -> list[dict[str, Any]]:
    cells = [{**row, "overrides": json.dumps(dict(row["overrides"]))} for row in rows]
    cells = [{field.name: cell[field.name] for field in CELL} for cell in cells]
    pa.array(cells, CELL)  # refuses what is no number
    for cell in cells:
        if not 0 <= cell["hits"] <= cell["samples"] or cell["samples"] < 1 or cell["length"] < 1:
            raise ValueError(f"{cell['hits']} hits of {cell['samples']} samples at length {cell['length']}")
    return cells


def _last_step(path: Path) -> int | None:
    """Of the last whole line; a crash may have cut the last one."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            return int(parse_json(line)["step"])
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
    return None
