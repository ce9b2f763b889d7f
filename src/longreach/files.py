"""Files that are whole or not there."""

import os
from pathlib import Path

from longreach.errors import RunFailed


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


def append_line(path: Path, line: str) -> None:
    """Add to a file whose last line may be cut by a crash."""
    try:
        with path.open("a") as file:
            file.write(line + "\n")
    except OSError as error:
        raise RunFailed(f"could not write to {path}: {error.strerror}") from error
