"""A sweep in shared storage, as those see it who start and watch it.

The few small files that say what is done, what runs and what failed are copied into a folder here, which can then be
asked as any sweep folder can.  The storage alone counts: a mirror is made anew by every command.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from longreach.sweeps.courier import SIGN
from longreach.sweeps.order import Order
from longreach.sweeps.storage import Storage

_CHANGING = ("progress.json", "attempts.json", SIGN)


@dataclass(frozen=True)
class Mirror:
    storage: Storage
    folder: Path
    scratch: Path
    """Where jobs keep run folders while they work on them; each machine has its own."""

    def look(self, below: str = "") -> None:
        """Bring the mirror up to date: all of it, or one run."""
        there = {path for path in self.storage.list(below) if _is_told(path)}
        done = {str(PurePosixPath(path).parent) for path in there if self._is_finished(path)}
        wanted = []
        for path in there:
            name = PurePosixPath(path).name
            lasts = name not in _CHANGING or str(PurePosixPath(path).parent) in done
            if name != "scores.json" and not (lasts and (self.folder / path).exists()):
                wanted.append(path)
        contents = self.storage.read(wanted)
        # that there are scores is all that counts here
        contents |= {path: b"" for path in there if PurePosixPath(path).name == "scores.json"}
        for path, content in contents.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(content)
        for file in [file for file in (self.folder / below).rglob("*") if file.is_file()]:
            if file.relative_to(self.folder).as_posix() not in there:
                file.unlink()

    def _is_finished(self, path: str) -> bool:
        """Seen at an earlier look: a finished run changes no more."""
        return PurePosixPath(path).name == "scores.json" and (self.folder / path).exists()

    def take_attempts(self, names: Sequence[str]) -> None:
        """To the storage, also that there are none any more."""
        for path in (f"{name}/attempts.json" for name in names):
            if (self.folder / path).exists():
                self.storage.put(self.folder / path, path)
            else:
                self.storage.remove(path)

    def take_aside(self, name: str) -> None:
        """Rename damaged notes about a run in the storage as they were renamed here."""
        for aside in (self.folder / name).glob("*.json.damaged"):
            path = f"{name}/{aside.name}"
            self.storage.put(aside, path)
            self.storage.remove(path.removesuffix(".damaged"))

    def redirect(self, order: Order, names: Sequence[str]) -> Order:
        """The same order for a process that works in scratch folders."""
        folders = [str(self.scratch / name) for name in names]
        return replace(order, folders=folders, urls=[f"{self.storage.url}/{name}" for name in names])


@contextmanager
def open_mirror(storage: Storage, scratch: Path) -> Iterator[Mirror]:
    with tempfile.TemporaryDirectory(prefix="longreach-") as folder:
        mirror = Mirror(storage, Path(folder), scratch)
        mirror.look()
        yield mirror


def check_writable(storage: Storage) -> None:
    """Better now than at the first checkpoint."""
    with tempfile.NamedTemporaryFile() as empty:
        storage.put(Path(empty.name), ".write-test")
    storage.remove(".write-test")


def scratch_folder(url: str, parent: Path | None = None) -> Path:
    """Of a URL: the same at every start, so that two processes of one machine meet there."""
    digest = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:12]
    return (parent or Path(tempfile.gettempdir()) / f"longreach-{os.getuid()}").resolve() / digest


def _is_told(path: str) -> bool:
    name = PurePosixPath(path).name
    is_record = "/checkpoints/step-" in path and name.endswith(".json")
    return is_record or name in ("config.yaml", "scores.json", *_CHANGING)
