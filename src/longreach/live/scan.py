"""Folders of runs and sweeps below a path; a folder is listed again only after it has changed."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from longreach.live.records import ATTEMPTS, SWEEP

RUN_LOCK = ".run.lock"
SCORES = "scores.json"
_TELLING = frozenset({"config.yaml", RUN_LOCK, SCORES, ATTEMPTS, SWEEP})
_OF_A_RUN = frozenset({"config.yaml", RUN_LOCK, ATTEMPTS})
_INSIDE_A_RUN = ("checkpoints", "tensorboard", "wandb")
"""Folders with many files and no runs."""
_SETTLED = 2.0
"""Seconds after a change within which another one may leave the same time."""


class Listing(NamedTuple):
    """What a folder holds."""

    names: frozenset[str]
    """Of its files, those that tell what it is."""
    below: tuple[str, ...]
    """The folders to look into."""
    changed: float

    @property
    def is_run(self) -> bool:
        return bool(self.names & _OF_A_RUN)


class Folders:
    """The folders at and below a path.  Links to folders are not followed."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._known: dict[str, tuple[int, Listing]] = {}
        self.problems: list[str] = []
        """Folders that cannot be read."""

    def look(self) -> dict[str, Listing]:
        """Return runs and sweeps by their path below the root, which itself has an empty one."""
        self.problems = []
        known, found = {}, {}
        prefix = len(os.path.join(self.root, ""))
        waiting = [self.root]
        while waiting:
            folder = waiting.pop()
            try:
                known[folder] = self._list(folder)
            except FileNotFoundError:  # removed since its parent was listed
                continue
            except OSError as error:
                self.problems.append(f"cannot read {folder}: {error.strerror}")
                continue
            listing = known[folder][1]
            waiting += [os.path.join(folder, name) for name in listing.below]
            if listing.is_run or SWEEP in listing.names:
                found[folder[prefix:]] = listing
        self._known = known
        return found

    def _list(self, folder: str) -> tuple[int, Listing]:
        changed = os.stat(folder).st_mtime_ns
        before = self._known.get(folder)
        if before is not None and before[0] == changed:
            return before
        names, below = set(), []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in _TELLING:
                    names.add(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
        is_run = bool(names & _OF_A_RUN)
        kept = tuple(name for name in below if not (is_run and name in _INSIDE_A_RUN))
        # within a tick of the clock the folder may change again and keep its time: then it is listed once more
        stamp = changed if time.time() - changed / 1e9 > _SETTLED else -1
        return stamp, Listing(frozenset(names), kept, changed / 1e9)
