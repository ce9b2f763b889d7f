"""A run folder between shared storage and the machine that works on it.

The folder here is scratch: it is filled from the storage before the work begins and emptied after it, so it makes no
difference on which machine a run goes on.  What is copied up keeps the order in which a run writes its files, so that
the storage can be trusted at any moment: the config before anything that needs it, a checkpoint's tensors before the
record that makes them count, scores last.
"""

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from longreach.runs import HOLDER, LOCK
from longreach.sweeps.storage import Storage
from longreach.system.files import write_atomically

SIGN = ".working.json"
"""Who works on a run in the storage, and when that was last so."""
LOG = "log.txt"
_BEAT_SECONDS = 10.0
"""Between two signs of life."""
_LIFE_SECONDS = 60.0
"""After which a sign counts for nothing: whoever gave it is gone."""
_LOOK_SECONDS = 0.5
"""Between two looks at another's sign."""


class Courier:
    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder = folder
        self.storage = storage
        self.there: dict[str, tuple[int, int]] = {}
        """What the storage has of the folder: time and size of each file as they were here when it was copied."""
        self.last_beat = -_BEAT_SECONDS

    @contextmanager
    def at_work(self, should_stop: Callable[[], bool]) -> Iterator[bool]:
        """Bring the run here, and take it back in the end, however it ends; False if asked to stop before."""
        if not self._wait_for_others(should_stop):
            yield False
            return
        self._bring()
        self.beat()
        try:
            yield True
        finally:
            self.send()
            self.storage.remove(SIGN)
            _empty(self.folder)

    def send(self) -> None:
        """Copy up what is new, then remove there what is gone here."""
        now = {path: (facts.st_mtime_ns, facts.st_size) for path, facts in self._files()}
        for path in sorted(now, key=copying_order):
            if self.there.get(path) != now[path]:
                self.storage.put(self.folder / path, path)
                self.there[path] = now[path]
        # a record goes before its tensors: a checkpoint without a record does not count
        for path in sorted(self.there.keys() - now.keys(), key=copying_order, reverse=True):
            self.storage.remove(path)
            del self.there[path]

    def beat(self) -> None:
        """Tell from time to time that the work goes on, and how far it is."""
        if time.monotonic() - self.last_beat < _BEAT_SECONDS:
            return
        self.last_beat = time.monotonic()
        sign = {"process": os.getpid(), "host": socket.gethostname(), "time": time.time()}
        write_atomically(self.folder / SIGN, json.dumps(sign).encode())
        for name in (SIGN, "progress.json", LOG):
            if (self.folder / name).exists():
                self.storage.put(self.folder / name, name)

    def _wait_for_others(self, should_stop: Callable[[], bool]) -> bool:
        """A process on another machine that has lost its sweep may still be saving."""
        while (sign := self.storage.read([SIGN]).get(SIGN)) is not None:
            # here, the lock on the folder has decided already
            if not _is_fresh(sign) or json.loads(sign)["host"] == socket.gethostname():
                break
            if should_stop():
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _bring(self) -> None:
        """What lies here from an earlier start may be older than what the storage has."""
        _empty(self.folder)
        for path in self.storage.list():
            name = PurePosixPath(path).name
            # the log is here already, and being written to
            if path != LOG and not name.startswith("."):
                self.storage.fetch(path, self.folder / path)
            elif name.startswith(".") and name.endswith(".part"):
                self.storage.remove(path)  # left in a folder behind file:// by a killed process
        self.there = {path: (facts.st_mtime_ns, facts.st_size) for path, facts in self._files() if path != LOG}

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Hidden ones are nobody else's business: locks, signs, files that are not whole yet."""
        for path in self.folder.rglob("[!.]*"):
            if path.is_file():
                yield path.relative_to(self.folder).as_posix(), path.stat()


def shows_life(folder: Path) -> bool:
    """Whether somebody was at work on a run a moment ago, by its sign."""
    try:
        return _is_fresh((folder / SIGN).read_bytes())
    except FileNotFoundError:
        return False


def _is_fresh(sign: bytes) -> bool:
    """Return whether a sign was given a moment ago; a damaged one counts as old."""
    try:
        facts = json.loads(sign)
        return bool(time.time() - float(facts["time"]) < _LIFE_SECONDS and isinstance(facts["host"], str))
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def copying_order(path: str) -> int:
    """When a file is copied up; records of checkpoints go before their tensors when they are removed."""
    if path in ("run.json", "config.yaml"):
        return ("run.json", "config.yaml").index(path)
    if path.startswith("checkpoints/"):
        return 3 if path.endswith(".safetensors") else 4
    # metrics must reach as far as the checkpoint that a run will go on from
    return 5 if path == "scores.json" else 2


def _empty(folder: Path) -> None:
    """The lock is held, and whoever started the job reads the log."""
    for path in folder.iterdir():
        if path.name not in (LOCK, HOLDER, LOG):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
