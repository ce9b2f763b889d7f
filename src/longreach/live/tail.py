"""Files that another process adds lines to, read from where the last look ended."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longreach.errors import BadInput
from longreach.system.files import naming_damage, parse_json

_AT_ONCE = 1 << 20
"""Bytes that are read at a time."""
_LONGEST_LINE = 1 << 20
"""Bytes without an end of line after which a file holds no lines."""


class Tail:
    """The lines of a JSON Lines file.  A line that is not finished yet is read when it is."""

    def __init__(self, path: Path, last: int | None = None) -> None:
        """`last` limits the first look to so many bytes at the end of the file."""
        self.path, self.last = path, last
        self.problem = ""
        """The first line that is damaged, or why the file cannot be read."""
        self.changed = 0.0
        """The time of the last change."""
        self._stamp: tuple[int, int, int] | None = None
        self._offset = self._number = 0
        self._rest = b""

    @property
    def ends_within_a_line(self) -> bool:
        return bool(self._rest)

    def read(self, take: Callable[[dict[str, Any]], None], forget: Callable[[], None] = lambda: None) -> None:
        """Call `take` with each new line, and `forget` before that if the file was replaced by another one."""
        try:
            stat = os.stat(self.path)
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if stamp == self._stamp:
                return
            with self.path.open("rb") as file:
                if self._stamp is None:
                    self._offset = max(0, stat.st_size - self.last) if self.last is not None else 0
                elif stat.st_ino != self._stamp[0] or stat.st_size < self._offset:
                    self._offset, self._number, self._rest, self.problem = 0, 0, b"", ""
                    forget()
                cut = self._stamp is None and self._offset > 0  # the first line has lost its beginning
                file.seek(self._offset)
                while content := file.read(_AT_ONCE):
                    self._offset += len(content)
                    *lines, self._rest = (self._rest + content).split(b"\n")
                    for line in lines[1:] if cut else lines:
                        self._take(line, take)
                    cut = cut and not lines
                    if len(self._rest) > _LONGEST_LINE:
                        self.problem = self.problem or f"{self.path} is damaged: a line has no end"
                        self._rest = b""
            self._stamp, self.changed = stamp, stat.st_mtime
        except FileNotFoundError:
            return
        except OSError as error:
            self.problem = f"cannot read {self.path}: {error.strerror}"

    def _take(self, line: bytes, take: Callable[[dict[str, Any]], None]) -> None:
        self._number += 1
        try:
            where = "" if self.last is not None else f" in line {self._number}"
            with naming_damage(self.path, where):
                values = parse_json(line)
                if not isinstance(values, dict):
                    raise ValueError("it is no object")
                take(values)
        except BadInput as error:
            self.problem = self.problem or str(error)
