"""What was read from run folders, kept in one hidden file at the root, so that only what changed is read again.

The folders are the truth.  An index that is missing, damaged or of another version is made anew.  Every row carries the
stamp of what it was made from, so an index that another process has just replaced costs at most some reading.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from longreach.files import write_atomically
from longreach.results.read import CELL, read_run
from longreach.results.scan import scan

NAME = ".longreach-index.parquet"
_VERSION = b"1"
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
            index = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            say(f"{path} is damaged and made anew: {str(error).splitlines()[0]}")
        else:
            if index.schema.equals(SCHEMA, check_metadata=True):
                return index
    return SCHEMA.empty_table()


def _save(path: Path, index: pa.Table, say: Callable[[str], None]) -> None:
    content = io.BytesIO()
    pq.write_table(index, content, compression="zstd")
    try:
        write_atomically(path, content.getvalue())
    except OSError as error:  # another's folder can be read all the same
        say(f"{path} cannot be written ({error.strerror}): every run will be read again next time")
