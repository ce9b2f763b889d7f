"""A table as a file, in the form its name asks for."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from longreach.errors import BadInput
from longreach.system.files import write_atomically

FORMS = (".parquet", ".csv", ".json")


def check_form(path: Path) -> None:
    if path.suffix not in FORMS:
        raise BadInput(f"{path}: the name must end in {', '.join(FORMS)}")
    if not path.resolve().parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.resolve().parent}")


def export(table: pa.Table, path: Path) -> None:
    """Parquet keeps the types; JSON is a list with an object for each row."""
    content = io.BytesIO()
    if path.suffix == ".parquet":
        pq.write_table(table, content, compression="zstd")
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, content)
    else:
        content.write((json.dumps(table.to_pylist()) + "\n").encode())
    write_atomically(path, content.getvalue())
