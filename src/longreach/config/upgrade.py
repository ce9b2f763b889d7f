"""Settings of earlier versions, moved to their present places: pure functions on plain mappings."""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from longreach.config.settings import Plain
from longreach.errors import BadInput

_MOVED = {
    "train": (
        "accumulate",
        "compile",
        "recompute",
        "log_every",
        "save_every",
        "keep_last",
        "graph",
        "deterministic",
    ),
    "evaluate": ("batch_tokens", "graph"),
}
"""Fields of the section `execution`, by the section that they were in."""


def upgrade(settings: Mapping[str, Any]) -> Plain:
    """Return the whole settings of a run with every old field in its new place; idempotent.

    Raise BadInput where an old field and its new one are both given.
    """
    moved = move_fields(settings)
    train = moved.get("train")
    if isinstance(train, Mapping) and "objective" in train:
        moved["train"] = _with_objectives(train)
    return moved


def upgrade_recorded(settings: Mapping[str, Any]) -> Plain:
    """Return the settings of a run folder, which name every field of their time.

    Where a later field has another default than what was in force before, the earlier value is filled in.
    """
    filled = upgrade(settings)
    if isinstance(test := filled.get("evaluate"), Mapping):
        filled["evaluate"] = {"questions": "shared", **test}
    if "task" in filled:
        filled["task"] = _with_pointers(filled["task"])
    return filled


def _with_pointers(task: Any) -> Any:
    """Fill in the distractors of `variable_assignment`, also inside tasks that wrap it."""
    if isinstance(task, list):
        return [_with_pointers(part) for part in task]
    if not isinstance(task, Mapping):
        return task
    parts = {name: _with_pointers(value) for name, value in task.items()}
    return {"distractors": "pointers", **parts} if task.get("name") == "variable_assignment" else parts


def move_fields(settings: Mapping[str, Any]) -> Plain:
    """Return settings with the old fields of `train` and `evaluate` in `execution`; idempotent.

    Settings that lie on top of others pass through this function before they are merged, so that the upper ones win
    whichever name they use.  A section that only had old fields is left out: an empty one would replace another whole.
    """
    moved = dict(settings)
    execution: Plain = {}
    for section, names in _MOVED.items():
        own = moved.get(section)
        if not isinstance(own, Mapping) or not (old := {name: own[name] for name in names if name in own}):
            continue
        for name, value in old.items():
            if isinstance(new := moved.get("execution"), Mapping) and name in new:
                raise BadInput(f"{section}.{name} is now execution.{name}: give one of them")
            # steps and tests were recorded by two settings: both must allow it
            execution[name] = value if execution.get(name, True) is True else execution[name]
        rest = {name: value for name, value in own.items() if name not in old}
        moved[section] = rest
        if not rest:
            del moved[section]
    if execution and isinstance(new := moved.get("execution", {}), Mapping):
        moved["execution"] = {**new, **execution}
    return moved


def move_path(path: str) -> str:
    """Return the present name of a setting: `train.graph` -> `execution.graph`."""
    section, _, name = path.partition(".")
    return f"execution.{name}" if name in _MOVED.get(section, ()) else path


def _with_objectives(train: Mapping[str, Any]) -> Plain:
    """Replace the mapping `objective` by the list `objectives`, where this version has a registry of them."""
    if importlib.util.find_spec("longreach.objectives") is None:
        return dict(train)
    upgrade_objective = importlib.import_module("longreach.objectives").upgrade_objective  # it brings torch
    return dict(upgrade_objective(train))
