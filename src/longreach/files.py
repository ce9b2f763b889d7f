"""Files that are whole or not there."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content at once or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
