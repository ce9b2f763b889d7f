"""Files that are whole or not there."""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from longreach.errors import RunFailed

T = TypeVar("T")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content at once or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename = str(path)  # a full disk does not say where it is full
        raise
    finally:
        temporary.unlink(missing_ok=True)


def read_note(path: Path, make: Callable[[Any], T]) -> T | None:
    """Return what `make` builds from a small JSON file, or None if there is no such file.

    Raises `ValueError` with the path if the file is damaged.  `make` raises `ValueError`, `TypeError` or `KeyError`.
    """
    try:
        return make(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of `write_atomically` that processes of this machine left when they were killed.

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
