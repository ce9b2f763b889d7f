"""Where texts come from: files, folders, JSONL, Parquet, Hugging Face datasets.  One document at a time."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from longreach.errors import BadInput, RunFailed
from longreach.text.fetch import fetched_texts
from longreach.text.hub import refuse_code
from longreach.text.tokenizer import utf8

LARGEST = 1 << 28
"""Bytes of one document, which is held in memory as a whole."""
_LINES = (".jsonl", ".ndjson", ".json")
_ROWS = 64
"""Of a Parquet file, read at once."""

Piece = tuple[str, int]
"""A text, and how many bytes of its file have been read so far."""


class Document(NamedTuple):
    """One text."""

    text: str
    digest: bytes
    """SHA-256 of the text, which decides the split."""
    read: int
    """Bytes of all files that have been read so far, for those who watch; 0 where they are not known."""


class TextSource(NamedTuple):
    """One thing that was named, found but not read yet."""

    name: str
    files: list[Path]
    """Empty for a dataset of Hugging Face."""

    @property
    def has_fields(self) -> bool:
        return not self.files or any(_form(path) is not _text_file for path in self.files)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.files)


def find_source(name: str) -> TextSource:
    """A text that was fetched, or a path: one that has the name of such a text is written ./NAME."""
    if name.startswith("hf:"):
        return TextSource(name, [])
    if not name:
        raise BadInput("a text without a name was given")
    path = fetched_texts(name) or Path(name)
    if path.is_dir():
        inside = sorted(path.rglob("*"), key=lambda file: file.relative_to(path).parts)
        files = [file for file in inside if file.is_file() and not _hidden(file.relative_to(path))]
        if not files:
            raise BadInput(f"{name} holds no files")
        return TextSource(name, files)
    if not path.exists():
        raise BadInput(f"there is no file or folder {name}, and no text of that name to fetch: see longreach text list")
    return TextSource(name, [path])


def read_documents(sources: Sequence[TextSource], field: str, limit: int | None = None) -> Iterator[Document]:
    """All documents in order, or the first `limit`; empty ones are left out."""
    return islice(_read_all(sources, field), limit)


def _read_all(sources: Sequence[TextSource], field: str) -> Iterator[Document]:
    before = 0
    for source in sources:
        for place, pieces, size in _open(source, field):
            for text, read in pieces:
                if text and not text.isspace():
                    yield Document(text, _digest(text, place), before + read)
            before += size


def _open(source: TextSource, field: str) -> Iterator[tuple[str, Iterator[Piece], int]]:
    if not source.files:
        yield source.name, _hugging_face(source.name, field), 0
    for path in source.files:
        yield str(path), _form(path)(path, field), path.stat().st_size


def _form(path: Path) -> Callable[[Path, str], Iterator[Piece]]:
    if path.suffix == ".parquet":
        return _parquet
    return _json_lines if path.name.removesuffix(".gz").endswith(_LINES) else _text_file


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _digest(text: str, place: str) -> bytes:
    try:
        encoded = utf8(text)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error
    if len(encoded) > LARGEST:
        raise BadInput(f"{place} has a document of {len(encoded)} bytes, and the limit is {LARGEST}: cut it up")
    return hashlib.sha256(encoded).digest()


def _text_file(path: Path, field: str) -> Iterator[Piece]:
    """A text file is one document: nothing in it says where another would begin."""
    size = path.stat().st_size
    if size > LARGEST:
        raise BadInput(
            f"{path} would be one document of {size} bytes, and the limit is {LARGEST}: cut it up, or use JSONL"
        )
    try:
        yield path.read_text(encoding="utf-8-sig"), size
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}") from error


def _json_lines(path: Path, field: str) -> Iterator[Piece]:
    with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else nullcontext(raw) as lines:
        for number, line in enumerate(_whole(lines, path), start=1):
            if not line.isspace():
                yield _field(line, field, f"{path}, line {number}"), raw.tell()


def _whole(lines: Iterable[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from lines
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadInput(f"{path} is damaged: {error}") from error


def _field(line: bytes, field: str, place: str) -> str:
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        raise BadInput(f"{place} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place} is not JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get(field), str):
        keys = f"; it has {', '.join(value)}" if isinstance(value, dict) else ""
        raise BadInput(f"{place} has no text in a field {field!r}{keys}")
    text: str = value[field]
    return text


def _parquet(path: Path, field: str) -> Iterator[Piece]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise BadInput("Parquet files need pyarrow: pip install 'longreach[text]'") from error
    size = path.stat().st_size
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(file.schema_arrow, field, path, pa)
            rows, done = file.metadata.num_rows, 0
            for batch in file.iter_batches(batch_size=_ROWS, columns=[field]):
                for text in batch.column(0):
                    done += 1
                    yield text.as_py() or "", size * done // rows
    except pa.ArrowException as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def _check_columns(schema: Any, field: str, path: Path, pa: Any) -> None:
    if field not in schema.names:
        raise BadInput(f"{path} has no column {field!r}; it has {', '.join(schema.names)}")
    kind = schema.field(field).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise BadInput(f"{path}: column {field!r} is not text but {kind}")


def _hugging_face(name: str, field: str) -> Iterator[Piece]:
    """`hf:NAME` or `hf:NAME:CONFIGURATION`, streamed; its training split, which is then split anew."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise BadInput(f"{name} needs the datasets package: pip install 'longreach[datasets]'") from error
    dataset, _, configuration = name.removeprefix("hf:").partition(":")
    # from release 4 on, datasets runs no scripts and has no such parameter
    safe = {"trust_remote_code": False} if "trust_remote_code" in signature(load_dataset).parameters else {}
    try:
        rows = load_dataset(dataset, configuration or None, split="train", streaming=True, **safe)
    except (OSError, ValueError, RuntimeError) as error:  # not found, no network, no such configuration
        refuse_code(name, error)
        raise BadInput(f"cannot open {name}: {str(error).strip().splitlines()[0]}") from error
    number = 0
    try:
        for number, row in enumerate(rows, start=1):
            if not isinstance(row.get(field), str):
                raise BadInput(f"{name}, row {number} has no text in a field {field!r}; it has {', '.join(row)}")
            yield row[field], 0
    except OSError as error:
        raise RunFailed(f"{name} broke off after {number} rows ({error}): --resume goes on") from error
