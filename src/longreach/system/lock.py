"""Locks on folders: one process at a time trains a run or drives a sweep.

The operating system holds a lock (`flock`) and releases it when the process ends, also after SIGKILL.  The lock file
itself stays in its folder and means nothing.  The record beside it names the holder, for messages only: some versions
of filelock empty a lock file when they try to take it.
"""

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from longreach.errors import BadInput, RunFailed
from longreach.system.files import write_atomically

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".run.lock"
"""Held by the process that works on a run folder."""
HOLDER = ".run.holder"
"""The record of that process."""
_GRACE = 0.5
"""Seconds until a lock counts as taken: `is_locked` of another process holds it for a moment."""
_POLL_SECONDS = 0.05
_WAIT_SECONDS = 0.2
"""Between two tries of `wait_for_lock`."""
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextmanager
def hold(path: Path, name: str = "", again: bool = False) -> Iterator[None]:
    """Hold a lock; raise `BadInput` with the holder's process, host and time if it is taken.

    With `again`, the thread that holds the lock may take it once more.  `name` replaces the folder's path in messages.
    """
    lock = _lock(path)
    first = not lock.is_locked
    if not (first or again) or not _acquire(lock, path, _GRACE):
        raise BadInput(f"{name or path.parent} is being worked on by {_holder(path)}")
    try:
        if first:
            _record_holder(path)
        yield
    finally:
        lock.release()


@contextmanager
def wait_for_lock(path: Path, should_stop: Callable[[], bool], say: Callable[[str], None]) -> Iterator[bool]:
    """Hold a lock as soon as it is free and yield True; yield False if `should_stop` comes first."""
    lock = _lock(path)
    waiting = False
    while not _acquire(lock, path, 0.0):
        if should_stop():
            yield False
            return
        if not waiting:
            waiting = True
            say(f"waiting: {path.parent} is being worked on by {_holder(path)}")
        time.sleep(_WAIT_SECONDS)
    try:
        _record_holder(path)
        yield True
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock.  Nothing is written, and permission to read is enough."""
    if fcntl is None:
        return _is_taken(path)
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # free again at the end of the block
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise _without_locks(path) from error
        raise RunFailed(f"cannot read {path}: {error.strerror}") from error
    return False


def _is_taken(path: Path) -> bool:
    """Return whether a process holds the lock, on a system without `flock`."""
    if not path.exists():
        return False
    probe = FileLock(path)  # not the shared instance, which this process may hold itself
    if not _acquire(probe, path, 0.0):
        return True
    probe.release()
    return False


def _lock(path: Path) -> FileLock:
    """Return the lock of a path; all callers of this process share it, so that a thread can take it twice."""
    return FileLock(path.resolve(), is_singleton=True)


def _acquire(lock: FileLock, path: Path, seconds: float) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=seconds, poll_interval=_POLL_SECONDS)
    except Timeout:
        return False
    except NotImplementedError as error:
        raise _without_locks(path) from error
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise _without_locks(path) from error
        raise RunFailed(f"cannot write to {path.parent}: {error.strerror}") from error
    if isinstance(lock, SoftFileLock):  # newer versions of filelock fall back to a lock that outlives a killed process
        lock.release()
        raise _without_locks(path)
    return True


def _without_locks(path: Path) -> BadInput:
    return BadInput(f"{path.parent} is on a file system without locks (flock): choose a folder elsewhere")


def _record_holder(path: Path) -> None:
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    text = f"process {os.getpid()} on {socket.gethostname()} since {since} UTC"
    try:
        write_atomically(path.with_suffix(".holder"), f"{text}\n".encode())
    except OSError as error:
        raise RunFailed(f"cannot write to {path.parent}: {error.strerror}") from error


def _holder(path: Path) -> str:
    """Describe the holder of a lock as its record does."""
    try:
        text = path.with_suffix(".holder").read_text()[:200].strip()
    except (OSError, ValueError):
        return "another process"
    return text if text and text.isprintable() else "another process"
