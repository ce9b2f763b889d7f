"""Runs as a table with a column for each setting, and their scores as a table with a row for each cell."""

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from longreach.errors import BadInput
from longreach.results.index import Phase, refresh

ABOUT = ("run", "recipe", "variant", "seed", "state", "step", "problem")
"""What every run has."""
CELL_COLUMNS = ("length", "metric", "hits", "samples", "rate")


def load_runs(
    paths: Iterable[Path],
    phase: Phase = lambda title, total: lambda done, note: None,
    say: Callable[[str], None] = lambda line: None,
) -> pa.Table:
    """One row per run at or below the paths, in natural order: `ABOUT`, every setting, and its scores as a list."""
    parts = []
    seen: set[str] = set()
    for root in paths:
        index = refresh(root, phase, say)
        there = _below(root.resolve(), index)
        new = [path not in seen for path in there]
        seen.update(there)
        index = index.append_column("run", pa.array(_below(root, index), pa.string()))
        parts.append(index if all(new) else index.filter(pa.array(new)))
    if not seen:
        raise BadInput(f"no run in {', '.join(map(str, paths))}")
    index = pa.concat_tables(parts)
    order = sorted(enumerate(index["run"].to_pylist()), key=lambda pair: _natural(pair[1]))
    index = index.take(pa.array([number for number, _ in order]))
    settings = _unpack(index["settings"].combine_chunks(), lambda value: value)
    return pa.table({**{name: index[name] for name in ABOUT}, **settings, "scores": index["scores"]})


def _below(root: Path, index: pa.Table) -> list[str]:
    """What `root / path` would say, for thousands of paths; the root itself has an empty one."""
    prefix = "" if root == Path() else os.path.join(root, "")
    return [prefix + path if path else str(root) for path in index["path"].to_pylist()]


def varied(runs: pa.Table) -> list[str]:
    """Return the settings that have several values among the runs; those of `execution` count only if swept."""
    variants = runs["variant"].unique().to_pylist()
    settings = [
        name
        for name in runs.column_names
        if name not in (*ABOUT, "scores") and not _is_unswept_execution(name, variants)
    ]
    return [name for name in settings if pc.count_distinct(runs[name], mode="only_valid").as_py() > 1]


def _is_unswept_execution(setting: str, variants: Sequence[str]) -> bool:
    """Return whether a setting concerns execution, and no variant of a sweep is named by it, or by its old name."""
    section, _, name = setting.partition(".")
    return section == "execution" and not any(f".{name}=" in variant for variant in variants)


def cells(runs: pa.Table, columns: Sequence[str] = ABOUT) -> pa.Table:
    """One row per run and cell: columns of the runs, the task's fields that evaluation changed, counts and rate.  A run
    without scores has one row with an empty cell."""
    scores = runs["scores"].combine_chunks()
    parents = pc.list_parent_indices(scores)
    cell = pc.list_flatten(scores)
    about = runs.select(columns).take(parents)
    table = dict(zip(about.column_names, about.columns, strict=True))
    for name, values in _unpack(pc.struct_field(cell, "overrides"), _from_text).items():
        # a run may be trained under one k and tested under another: `task.k` is the former, `k` the latter
        table[f"tested.{name}" if name in table or name in CELL_COLUMNS else name] = values
    table |= {name: pc.struct_field(cell, name) for name in CELL_COLUMNS[:-1]}
    table["rate"] = pc.divide(pc.cast(table["hits"], pa.float64()), table["samples"])
    return pa.table(table)


def _unpack(texts: pa.Array, convert: Callable[[Any], Any]) -> dict[str, pa.Array]:
    """Mappings in JSON -> a column for each key.  Texts repeat: each is parsed once."""
    encoded = texts.dictionary_encode()
    mappings = [json.loads(text) for text in encoded.dictionary.to_pylist()]
    names = dict.fromkeys(name for mapping in mappings for name in mapping)
    return {name: _column([convert(m.get(name)) for m in mappings]).take(encoded.indices) for name in names}


def _column(values: list[Any]) -> pa.Array:
    """Numbers where all values are, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pa.array(values, pa.float64())
    if kinds in ({int}, {float}, {bool}, {str}):
        return pa.array(values)
    text = [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(text, pa.string())


def _from_text(value: str | None) -> Any:
    """Overrides are kept as text, whatever they were."""
    for kind in (int, float):
        try:
            return None if value is None else kind(value)
        except ValueError:
            continue
    return value


def _natural(path: str) -> list[tuple[int, str]]:
    """seed-9 before seed-10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path)]
