"""Run what is left of a sweep: start, watch, try again, and say in the end what failed."""

import shlex
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from longreach.live import SWEEP_LOCK, SweepRecord, read_attempts, write_sweep
from longreach.runs import hold
from longreach.sweeps.backends import Backend
from longreach.sweeps.mirror import Mirror
from longreach.sweeps.order import make_order
from longreach.sweeps.plan import Job, SweepPlan
from longreach.sweeps.process import Outcome
from longreach.sweeps.state import forget_failures, given_up, note_failure, set_aside_damaged

_SECONDS = 0.2
"""Between two looks at the jobs: a request to stop must reach them soon."""


@dataclass(frozen=True)
class Watcher:
    """How a sweep tells what it is doing.  The defaults tell nobody."""

    say: Callable[[str], None] = lambda line: None
    show: Callable[[], None] = lambda: None
    """Called several times a second: time to draw the table anew."""
    should_stop: Callable[[], bool] = lambda: False


def sole_driver(out: Path, name: str = "") -> AbstractContextManager[None]:
    """Refuse to drive a sweep that another process drives; `name` replaces the folder's path in the message."""
    return hold(out / SWEEP_LOCK, name)


def drive(
    plan: SweepPlan,
    out: Path,
    backend: Backend,
    watcher: Watcher,
    retry_failed: bool = False,
    mirror: Mirror | None = None,
) -> bool:
    """Run jobs until every run is finished or has failed too often; return False if interrupted, with everything saved.

    With a mirror, which `out` is then the folder of, runs lie in shared storage.  Raises `BackendLost` if the backend
    is gone; the runs that it had are not charged with a failure.
    """
    if mirror is None:
        write_sweep(out, SweepRecord(plan.file.title, plan.file.retries, tuple(run.name for run in plan.runs)))
    jobs = [job for job in plan.jobs if not job.finished(out)]
    for run in (run for job in jobs for run in job.runs):
        if lines := set_aside_damaged(run.folder(out)):
            for line in lines:
                watcher.say(f"{run.name}: {line}")
            if mirror is not None:
                mirror.take_aside(run.name)
    if retry_failed:
        for job in jobs:
            for folder in job.folders(out):
                forget_failures(folder)
            if mirror is not None:
                mirror.take_attempts(job.names)
    retries = plan.file.retries
    where = str(out) if mirror is None else mirror.storage.url
    command = shlex.join(["longreach", "sweep", "run", str(plan.source.path), "--out", where])
    queue = deque(number for number, job in enumerate(jobs) if not given_up(job, out, retries))
    running: set[int] = set()
    stopping = False
    while running or (queue and not stopping):
        if watcher.should_stop() and not stopping:
            stopping = True
            backend.stop()
        while queue and not stopping and backend.has_room():
            number = queue.popleft()
            order = make_order(jobs[number], out, plan.file.resources.cpus, command)
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
        if not folder.finished and read_attempts(folder.path).failures <= retries:
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
