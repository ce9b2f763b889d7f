"""A job's process, as its starter holds it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from longreach.sweeps.courier import LOG, SIGN
from longreach.sweeps.job import STOPPED, TOLD
from longreach.sweeps.order import Order
from longreach.sweeps.storage import open_storage
from longreach.system.files import write_atomically

_LAST_WORDS = 65536
"""Bytes at the end of a log that may tell why a job failed, with a line for each run of a stack."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended.  Whether its runs are finished is for their folders to say."""

    stopped: bool
    reason: str
    """Of a failure, in one line; empty where there was none."""
    own_reasons: tuple[str, ...] = ()
    """Of each run, in order, what was said of it alone; empty where nothing was."""


class JobProcess:
    def __init__(self, order: Order, environment: Mapping[str, str] | None = None, folder: str | None = None) -> None:
        """`folder` is where classes of the user's are found; the environment is added to ours."""
        order.log.parent.mkdir(parents=True, exist_ok=True)
        self.log = order.log
        self.places = order.urls or order.folders
        self.storages = [open_storage(url) for url in order.urls]
        if self.storages:
            # what earlier starts said, wherever that was
            write_atomically(self.log, self.storages[0].read([LOG]).get(LOG, b""))
        with order.log.open("ab") as log:
            self.log_start = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "longreach.sweeps"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # no file in the working folder stands in for a module, here and in processes that the job starts
                env={**os.environ, **(environment or {}), "PYTHONSAFEPATH": "1"},
                cwd=folder if folder and Path(folder).is_dir() else None,
                start_new_session=True,  # a Ctrl-C is meant for the sweep, which then asks its jobs to stop
            )
        assert self.process.stdin is not None
        self.stdin = self.process.stdin
        with suppress(BrokenPipeError):  # it ended at once: its outcome says why
            self.stdin.write(order.to_json().encode() + b"\n")
            self.stdin.flush()

    def stop(self) -> None:
        """Politely: the current step ends and everything is saved."""
        with suppress(BrokenPipeError):  # it has ended already
            self.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def outcome(self, seconds: float = 0.0) -> Outcome | None:
        """Once it has ended; None if it has not within so many seconds."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self.stop()
        # a process cannot copy its own last words, and one that was killed leaves its sign
        for storage in self.storages[:1]:
            storage.put(self.log, LOG)
        for storage in self.storages:
            storage.remove(SIGN)
        return Outcome(code == STOPPED, "") if code in (0, STOPPED) else self._failure(code)

    def _failure(self, code: int) -> Outcome:
        if code < 0:
            return Outcome(False, f"killed by {signal.Signals(-code).name}")
        with self.log.open("rb") as log:
            log.seek(max(self.log_start, log.seek(0, os.SEEK_END) - _LAST_WORDS))
            lines = [line.strip() for line in log.read().decode(errors="replace").split("\n") if line.strip()]
        last = lines[-1].removeprefix(TOLD) if lines else f"ended with code {code} and said nothing"
        told = [line.removeprefix(TOLD) for line in lines if line.startswith(TOLD)]
        own = (next((line for line in told if line.startswith(f"{place}: ")), "") for place in self.places)
        return Outcome(False, last, tuple(own))
