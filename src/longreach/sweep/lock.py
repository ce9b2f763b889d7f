"""Locks on files.  The system drops them when their process ends, however it ends: none is ever left behind."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".job.lock"
"""Held by the process that works on a run folder."""
_SECONDS = 0.2
"""Between two tries."""


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock if nobody else does; the answer says whether we do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(
        path, os.O_RDWR | os.O_CREAT, 0o644
    )  # children do not inherit it, so the lock is this process's alone
    try:
        yield _take(file)
    finally:
        os.close(file)


@contextmanager
def wait_for_lock(path: Path, should_stop: Callable[[], bool]) -> Iterator[bool]:
    """Hold the lock as soon as it is free; the answer is False if asked to stop before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not (held := _take(file)) and not should_stop():
            time.sleep(_SECONDS)
        yield held
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock; looking takes no lock that could be in its way for long."""
    if not path.exists():
        return False
    with try_lock(path) as free:
        return not free


def _take(file: int) -> bool:
    import fcntl  # not on Windows, where sweeps are all that is missing

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
