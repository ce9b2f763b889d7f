"""Files that are whole or not there, and files that are read with suspicion."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from longreach.errors import BadInput, RunFailed, lacks_memory

T = TypeVar("T")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces another one at once when the block ends, or not at all if the block raises."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk does not say where it is full
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content at once or not at all."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that takes its place when the block ends."""
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")  # not .part, which `remove_leftovers` unlinks
    try:
        temporary.mkdir()
        yield temporary
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of `replacing` that processes of this machine left when they were killed.

    Call it before this process writes into the folder: files with its own number stem from an earlier process.
    """
    for path in folder.glob(".*.part"):
        found = re.fullmatch(r"\..+\.(\d+)\.part", path.name)
        if found and not _is_another_process(int(found[1])):
            with suppress(PermissionError):  # Windows, which does not tell living processes, keeps open files
                path.unlink(missing_ok=True)


def _is_another_process(number: int) -> bool:
    """Return whether a process other than this one has the number; always False on Windows."""
    if os.name == "nt" or number == os.getpid():
        return False
    try:
        os.kill(number, 0)
    except PermissionError:  # it belongs to another user
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def append_line(path: Path, line: str) -> None:
    """Add to a file whose last line may be cut by a crash."""
    try:
        with path.open("a") as file:
            file.write(line + "\n")
    except OSError as error:
        raise RunFailed(f"could not write to {path}: {error.strerror}") from error


@contextmanager
def naming_damage(path: Path, where: str = "") -> Iterator[None]:
    """Raise BadInput that names the file, for any error of the block that reads it; `where` is a place in the file.

    Parsers of foreign content raise errors of every kind, bare `Exception` among them.  Only lack of memory passes.
    """
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:
        if lacks_memory(error) or isinstance(error, RunFailed):
            raise
        raise BadInput(f"{path} is damaged{where}: {one_line(error)}") from error


def read_json(path: Path, make: Callable[[Any], T]) -> T:
    """Return what `make` makes of a JSON file; raise BadInput that names the file if either fails."""
    with naming_damage(path):
        return make(parse_json(path.read_bytes()))


def read_note(path: Path, make: Callable[[Any], T]) -> T | None:
    """Return what `make` makes of a JSON file, or None if there is no file; raise BadInput if it is damaged."""
    return read_json(path, make) if path.exists() else None


def parse_json(content: bytes) -> Any:
    """Return the content of a JSON text whose whole numbers fit into 64 bits; raise ValueError otherwise."""
    try:
        found = json.loads(content, parse_int=_int64)
        if b"\\ud" in content.lower():
            json.dumps(found, ensure_ascii=False).encode()  # halves of characters can be neither printed nor saved
        return found
    except RecursionError as error:
        raise ValueError("too many levels of nesting") from error


def _int64(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= (number := int(digits)) < 1 << 63:
        raise ValueError(f"{digits:.20}... does not fit into 64 bits")
    return number


def one_line(error: Exception) -> str:
    """Return one line of at most 300 characters about an error that a file's content caused."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return " ".join(str(error).split())[:300] or type(error).__name__
