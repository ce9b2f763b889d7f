"""Ray: a cluster of its own on this machine, or one that exists."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from longreach.errors import BadInput, RunFailed, argument
from longreach.sweeps.backends.base import Backend, BackendLost
from longreach.sweeps.order import Order
from longreach.sweeps.process import JobProcess, Outcome
from longreach.sweeps.resources import Resources

try:
    import ray
except ImportError as error:
    raise BadInput("the backend ray needs Ray: pip install 'longreach[ray]'") from error

_SECONDS = 0.5
"""Between two looks at a job's process."""
_ASK_AGAIN = 1.0
"""Seconds after which a job that was to stop and has not ended is asked once more."""
_ANSWER = 30.0
"""Seconds that a cluster has to run an empty task before it counts as lost."""


class RayBackend(Backend):
    """A job is a task of Ray's, which keeps the job's process.  Ray places it; we try again what is lost."""

    def __init__(self, resources: Resources, address: str | None = None, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        if address and address != "auto":
            _refuse_dead_address(address)
        try:
            # "local" starts a cluster that ends with us; Ray would otherwise look for one by itself.  It puts the
            # working folder of this moment first on the path of every worker, where a file could stand in for a module
            with chdir(os.sep):
                ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", configure_logging=True)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RunFailed(f"no Ray at {address or 'this machine'}: {str(error).splitlines()[0]}") from error
        there = ray.cluster_resources()
        self.gpus = resources.gpus if resources.gpus is not None else float(there.get("GPU", 0) > 0)
        self.workers = workers
        self.tasks: dict[int, Any] = {}
        self.asked: float | None = None
        """When the jobs were last asked to stop."""
        needed = {"CPU": resources.cpus, "GPU": self.gpus}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not address and not any(all(node.get(k, 0) >= v for k, v in needed.items()) for node in nodes):
            ray.shutdown()
            raise BadInput(
                f"resources: a run needs {resources.cpus} CPUs and {self.gpus:g} GPUs, more than there are here"
            )
        # what is lost comes back to us: a retry of Ray's own would not be counted
        options = {"num_cpus": resources.cpus, "num_gpus": self.gpus, "max_retries": 0}
        self.task = ray.remote(**options)(_keep)
        self.empty_task = ray.remote(num_cpus=0, max_retries=0)(_answer)

    def has_room(self) -> bool:
        # Ray queues what finds no place, and a cluster that can grow does so for what is queued
        return self.workers is None or len(self.tasks) < self.workers

    def start(self, number: int, order: Order) -> None:
        order = order.on("cuda" if self.gpus else "cpu")
        task = self.task.options(name="/".join(Path(order.folders[0]).parts[-3:]))
        with _naming_loss():
            self.tasks[number] = task.remote(order, os.getcwd())

    def ended(self, seconds: float) -> dict[int, Outcome]:
        if self.asked is not None and time.monotonic() > self.asked + _ASK_AGAIN:
            self.stop()
        numbers = {task: number for number, task in self.tasks.items()}
        with _naming_loss():
            ready, _ = ray.wait(list(numbers), timeout=seconds) if numbers else ([], [])
        return {numbers[task]: self._result(numbers[task]) for task in ready}

    def stop(self) -> None:
        # Ray does what it can: a request that comes at an unlucky moment gets lost
        self.asked = time.monotonic()
        for task in self.tasks.values():
            ray.cancel(task)

    def close(self) -> None:
        """The processes of jobs that still run notice that their keepers are gone; they save and end."""
        ray.shutdown()

    def _result(self, number: int) -> Outcome:
        try:
            return ray.get(self.tasks.pop(number))  # type: ignore[no-any-return]
        except ray.exceptions.TaskCancelledError:
            return Outcome(stopped=True, reason="")
        except ray.exceptions.LocalRayletDiedError as error:
            raise _lost(error) from error
        except ray.exceptions.RayError as error:
            with _naming_loss():
                ray.get(self.empty_task.remote(), timeout=_ANSWER)  # the cluster is there: the run alone was lost
            return Outcome(stopped=False, reason=f"lost by Ray: {_in_short(error)}")


@contextmanager
def _naming_loss() -> Iterator[None]:
    """Raise `BackendLost` where Ray does not answer."""
    try:
        yield
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise _lost(error) from error


def _lost(error: Exception) -> BackendLost:
    return BackendLost(f"the Ray cluster is lost ({_in_short(error)}); no run is charged, and the same command goes on")


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _answer() -> None:
    """Show that the cluster runs tasks."""


def _refuse_dead_address(address: str) -> None:
    """Ray would look for minutes before it says that nobody is there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise BadInput(f"{argument('address')} must be auto or HOST:PORT of the cluster's head, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise RunFailed(f"no Ray at {address}: {error.strerror or error}") from error


def _keep(order: Order, folder: str) -> Outcome:
    """Runs on a worker.  A cancelled task is interrupted here, and lets its job save."""
    # a cluster that was started in the background of a script ignores interrupts, and so do its workers
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raylet = os.getppid()
    process = JobProcess(order, folder=folder)
    while True:
        try:
            # in short waits: Ray's interrupt does not end one that lasts
            outcome = process.outcome(_SECONDS)
        except KeyboardInterrupt:
            process.stop()
            continue
        lost = os.getppid() != raylet
        if outcome is None and lost:
            process.stop()  # nothing else would ever end this task
        elif outcome is not None:
            if lost and outcome.stopped:
                raise RuntimeError("the raylet of this task is gone; its job has saved")
            return outcome
