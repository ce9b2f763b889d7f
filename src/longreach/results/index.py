"""What was read from run folders, kept in one hidden file at the root, so that only what changed is read again.

The folders are the truth.  An index that is missing, damaged or of another version is made anew.  Every row carries the
stamp of what it was made from, so an index that another process has just replaced costs at most some reading.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from longreach.errors import BadInput
from longreach.results.read import CELL, read_run
from longreach.results.scan import scan
from longreach.system.files import naming_damage, write_atomically

NAME = ".longreach-index.parquet"
_VERSION = b"2"
SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("stamp", pa.string()),
        ("recipe", pa.string()),
        ("variant", pa.string()),
        ("seed", pa.int64()),
        ("state", pa.string()),
        ("step", pa.int64()),
        ("problem", pa.string()),
        ("settings", pa.string()),
        ("scores", pa.list_(pa.field("element", CELL))),  # the name that Parquet gives it
    ],
    metadata={"longreach": _VERSION},
)

Phase = Callable[[str, int], Callable[[int, str], None]]
"""Begins a phase of so many units; the answer is called with the units done and a note."""


def refresh(root: Path, phase: Phase, say: Callable[[str], None]) -> pa.Table:
    """The index of all runs at or below the root, brought up to date."""
    found = scan(root)
    old = _load(root / NAME, say)
    known = dict(zip(old["path"].to_pylist(), old["stamp"].to_pylist(), strict=True))
    if known == found:
        return old
    todo = sorted(path for path, stamp in found.items() if known.get(path) != stamp)
    index = old.filter(pa.array([found.get(path) == stamp for path, stamp in known.items()], pa.bool_()))
    rows: list[dict[str, Any]] = []
    try:
        report = phase(f"read {root}", len(todo)) if todo else None
        for path in todo:
            rows.append({"path": path, "stamp": found[path], **read_run(root / path)})
            if report is not None:
                report(len(rows), "")
    finally:  # what was read before an interruption need not be read again
        index = pa.concat_tables([index, pa.Table.from_pylist(rows, SCHEMA)])
        _save(root / NAME, index, say)
    return index


def _load(path: Path, say: Callable[[str], None]) -> pa.Table:
    if path.exists():
        try:
            with naming_damage(path):
                index = pq.read_table(path, page_checksum_verification=True)
                if index.schema.equals(SCHEMA, check_metadata=True):
                    _check(index)
                    return index
        except BadInput as error:
            say(f"{error}: it is made anew")
    return SCHEMA.empty_table()


def _check(index: pa.Table) -> None:
    """Raise ValueError for rows that `read_run` does not make."""
    cells = pc.list_flatten(index["scores"]).combine_chunks().drop_null()
    cells.validate(full=True)
    for column in ("path", "stamp", "recipe", "variant", "state", "problem", "settings"):
        if index[column].null_count:
            raise ValueError(f"a run has no {column}")
    texts = [index["settings"], pc.struct_field(cells, "overrides")]
    if not all(isinstance(json.loads(text), dict) for column in texts for text in column.unique().to_pylist()):
        raise ValueError("settings are no mapping")
    hits, samples = (pc.struct_field(cells, name) for name in ("hits", "samples"))
    if hits.null_count or samples.null_count or pc.any(pc.or_(pc.less(hits, 0), pc.less(samples, hits))).as_py():
        raise ValueError("counts that cannot be")


def _save(path: Path, index: pa.Table, say: Callable[[str], None]) -> None:
    content = io.BytesIO()
    pq.write_table(index, content, compression="zstd", write_page_checksum=True)
    try:
        write_atomically(path, content.getvalue())
    except OSError as error:  # another's folder can be read all the same
        say(f"{path} cannot be written ({error.strerror}): every run will be read again next time")
