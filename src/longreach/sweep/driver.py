"""Run what is left of a sweep: start, watch, try again, and say in the end what failed."""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from longreach.errors import BadInput
from longreach.sweep.backends import Backend
from longreach.sweep.lock import try_lock
from longreach.sweep.mirror import Mirror
from longreach.sweep.order import make_order
from longreach.sweep.plan import Job, Plan
from longreach.sweep.process import Outcome
from longreach.sweep.state import forget_failures, given_up, note_failure, read_attempts

_SECONDS = 0.2
"""Between two looks at the jobs: a request to stop must reach them soon."""


@dataclass(frozen=True)
class Watcher:
    """How a sweep tells what it is doing.  The defaults tell nobody."""

    say: Callable[[str], None] = lambda line: None
    show: Callable[[], None] = lambda: None
    """Called several times a second: time to draw the table anew."""
    should_stop: Callable[[], bool] = lambda: False


@contextmanager
def sole_driver(out: Path, name: str = "") -> Iterator[None]:
    """Refuse to drive a sweep that is driven already; the name is told where the folder only stands for it."""
    path = out / ".sweep.lock"
    with try_lock(path) as held:
        if not held:
            raise BadInput(f"{name or out} is being worked on by {path.read_text().strip() or 'another process'}")
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
        yield


def drive(
    plan: Plan,
    out: Path,
    backend: Backend,
    watcher: Watcher,
    retry_failed: bool = False,
    mirror: Mirror | None = None,
) -> bool:
    """Until every run is finished or has failed too often; False if interrupted, with everything saved.

    With a mirror, which `out` is then the folder of, runs lie in shared storage.
    """
    jobs = [job for job in plan.jobs if not job.finished(out)]
    if retry_failed:
        for job in jobs:
            for folder in job.folders(out):
                forget_failures(folder)
            if mirror is not None:
                mirror.take_attempts(job.names)
    retries = plan.file.retries
    queue = deque(number for number, job in enumerate(jobs) if not given_up(job, out, retries))
    running: set[int] = set()
    stopping = False
    while running or (queue and not stopping):
        if watcher.should_stop() and not stopping:
            stopping = True
            backend.stop()
        while queue and not stopping and backend.has_room():
            number = queue.popleft()
            order = make_order(jobs[number], out, plan.file.resources.cpus)
            backend.start(number, order if mirror is None else mirror.redirect(order, jobs[number].names))
            running.add(number)
        for number, outcome in backend.ended(_SECONDS).items():
            running.remove(number)
            job = jobs[number]
            if mirror is not None:
                for name in job.names:
                    mirror.look(name)
            if job.finished(out):
                watcher.say(f"finished: {_label(job)}")
            elif stopping:
                if outcome.reason:
                    watcher.say(f"stopped: {_label(job)}: {outcome.reason}")
            else:
                _note(job, out, outcome, retries, watcher, mirror)
                if not given_up(job, out, retries):
                    queue.append(number)
        watcher.show()
    return not stopping


def _note(job: Job, out: Path, outcome: Outcome, retries: int, watcher: Watcher, mirror: Mirror | None) -> None:
    """Write a failure down for each run that it left unfinished."""
    where = out if mirror is None else mirror.storage.url
    lost = f"it ended well, but {where} holds no scores: is the folder shared by all machines?"
    reason = outcome.reason or ("stopped from outside" if outcome.stopped else lost)
    for number, (name, folder) in enumerate(zip(job.names, job.folders(out), strict=True)):
        if not folder.finished and read_attempts(folder).failures <= retries:
            own = outcome.own_reasons[number] if outcome.own_reasons else ""
            attempts = note_failure(folder, own or reason)
            left = retries + 1 - attempts.failures
            watcher.say(f"failed: {name}: {attempts.reason}; " + (f"tries left: {left}" if left > 0 else "given up"))
    if mirror is not None:
        mirror.take_attempts(job.names)


def _label(job: Job) -> str:
    first, *others = job.runs
    if any(run.variation is not first.variation for run in others):
        return f"{first.name} and {len(others)} more"
    return ", ".join([first.name, *(str(run.seed) for run in others)])
