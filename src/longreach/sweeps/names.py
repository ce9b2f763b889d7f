"""Names of runs: a folder each, from what it varies.

    variant aligned, train.optimizer.lr 1e-3, ids {name: coupled, max_id: 200}
    ->  aligned,ids=coupled,ids.max_id=200,train.optimizer.lr=0.001

A name depends on the run alone, not on what else is in the file: a file may grow and be reordered, and what is finished
stays finished.  Whole paths stand in it for the same reason: the shorter `lr` could become ambiguous later.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from longreach.sweeps.expand import Combination

_LONGEST = 160
"""Characters of a name; file systems allow 255 bytes."""


def variation_name(variant: str, combination: Combination) -> str:
    """The name of a variant of a recipe under a combination; empty where nothing is varied."""
    parts = [f"{path}={_word(value)}" for choice in combination for path, value in _flat(choice.path, choice.value)]
    name = ",".join([variant, *parts] if variant else parts)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 13]}-{_digest(name)}"


def is_folder_name(name: object) -> bool:
    """Letters, digits, `-` and `_`, as in a variant's name: nothing that leads out of a folder."""
    return isinstance(name, str) and bool(re.fullmatch(r"[A-Za-z0-9_-]+", name))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """ids, {name: coupled, max_id: 200}  ->  (ids, coupled), (ids.max_id, 200)."""
    if not isinstance(value, Mapping) or not value:
        yield path, value
        return
    if "name" in value:
        yield path, value["name"]
    for key in sorted((key for key in value if key != "name"), key=str):
        yield from _flat(f"{path}.{key}", value[key])


def _word(value: Any) -> str:
    """A value in characters that every file system takes; where that loses something, a digest tells values apart."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if re.fullmatch(r"[A-Za-z0-9_.+-]+", text):
        return text
    readable = re.sub(r"[^A-Za-z0-9_.+-]+", "-", text).strip("-")
    return "-".join(part for part in (readable[:40], _digest(text)) if part)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
