"""One run folder as one row of the index.  What is damaged is named in its row, and breaks nothing else."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from longreach.errors import BadInput

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
    from longreach.config import read_yaml  # brings torch, which a table that is known already need not wait for

    row: dict[str, Any] = {"state": "unfinished", "problem": "", "settings": "{}", "scores": [None]}
    row |= {"recipe": "", "variant": "", "seed": None, "step": None}
    try:
        settings = flatten(read_yaml(folder / "config.yaml"))
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


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{train: {steps: 5}, ids: {name: coupled}} -> {train.steps: 5, ids: coupled}."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        # the name of a part stands for the part, as in a recipe
        path = prefix if key == "name" and prefix else f"{prefix}.{key}" if prefix else str(key)
        flat |= flatten(value, path) if isinstance(value, Mapping) else {path: value}
    return flat


def _origin(path: Path) -> dict[str, Any]:
    try:
        origin = json.loads(path.read_text())
        return {"recipe": str(origin["recipe"]), "variant": str(origin["variant"]), "seed": int(origin["seed"])}
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path} is damaged: {error}") from error


def _reason(path: Path) -> str:
    try:
        return str(json.loads(path.read_text())["reason"])
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path} is damaged: {error}") from error


def _cells(path: Path) -> list[dict[str, Any] | None]:
    try:
        rows = json.loads(path.read_text())
        cells = [{**row, "overrides": json.dumps(row["overrides"])} for row in rows]
        cells = [{field.name: cell[field.name] for field in CELL} for cell in cells]
        pa.array(cells, CELL)  # refuses what is no number
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    return [*cells] or [None]


def _last_step(path: Path) -> int | None:
    """Of the last whole line; a crash may have cut the last one."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, TypeError, KeyError):
            continue
    return None
