"""Rows of tables: JSON lines, Parquet files and datasets that were saved to disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from longreach.errors import BadInput
from longreach.system.files import naming_damage, one_line, parse_json

LINES = (".jsonl", ".ndjson")

TableRow = tuple[str, dict[str, Any]]
"""Where a row stands, such as `line 3`, and its fields."""


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[TableRow]:
    """Yield all rows of a file or of the folder of a saved dataset; columns that are not named may be left out."""
    if path.is_dir():
        return _saved_dataset(path)
    if path.suffix == ".parquet":
        return _parquet(path, columns)
    if path.suffix in LINES:
        return _json_lines(path)
    raise BadInput(f"{path}: a file of rows ends in {', '.join(LINES)} or .parquet, or is a folder of a saved dataset")


def _json_lines(path: Path) -> Iterator[TableRow]:
    with naming_damage(path):
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        try:
            fields = parse_json(line)
        except ValueError as error:
            raise BadInput(f"{path}, line {number} is not JSON: {one_line(error)}") from error
        if not isinstance(fields, dict):
            raise BadInput(f"{path}, line {number} is not a JSON object: {fields!r:.40}")
        yield f"line {number}", fields


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[TableRow]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise BadInput(f"{path} needs pyarrow: pip install 'longreach[table]'") from error
    with naming_damage(path), pq.ParquetFile(path) as file:
        present = file.schema_arrow.names
        known = [name for name in columns if name in present]
        rows = [row for batch in file.iter_batches(columns=known) for row in batch.to_pylist()]
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row or dict.fromkeys(present)


def _saved_dataset(path: Path) -> Iterator[TableRow]:
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise BadInput(f"{path} needs the datasets package: pip install 'longreach[datasets]'") from error
    if (path / "dataset_dict.json").exists():
        raise BadInput(f"{path} holds several splits: name the folder of one of them")
    with naming_damage(path):
        rows = list(load_from_disk(str(path)))
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row
