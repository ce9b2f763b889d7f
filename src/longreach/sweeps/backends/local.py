"""Processes of this machine, on its CPU or on all of its GPUs."""

import os
import time

import torch

from longreach.errors import BadInput, argument
from longreach.sweeps.backends.base import Backend
from longreach.sweeps.order import Order
from longreach.sweeps.process import JobProcess, Outcome
from longreach.sweeps.resources import Resources

_SECONDS = 0.1
"""Between two looks at the processes."""


class LocalBackend(Backend):
    """So many jobs at a time.  With GPUs, each place belongs to one of them, the only one that its jobs see."""

    def __init__(self, resources: Resources, workers: int | None = None) -> None:
        self.devices = _places(resources, workers)
        self.running: dict[int, tuple[int, JobProcess]] = {}
        """By number of the job: its place, its process."""

    def has_room(self) -> bool:
        return len(self.running) < len(self.devices)

    def start(self, number: int, order: Order) -> None:
        taken = [place for place, _ in self.running.values()]
        place = next(place for place in range(len(self.devices)) if place not in taken)
        gpu = self.devices[place]
        environment = {"OMP_NUM_THREADS": str(order.threads)}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self.running[number] = place, JobProcess(order.on("cpu" if gpu is None else "cuda"), environment)

    def ended(self, seconds: float) -> dict[int, Outcome]:
        until = time.monotonic() + seconds
        while True:
            found = {number: process.outcome() for number, (_, process) in self.running.items()}
            done = {number: outcome for number, outcome in found.items() if outcome is not None}
            if done or not self.running or time.monotonic() >= until:
                for number in done:
                    del self.running[number]
                return done
            time.sleep(_SECONDS)

    def stop(self) -> None:
        for _, process in self.running.values():
            process.stop()

    def kill(self) -> None:
        for _, job in list(self.running.values()):
            job.process.kill()

    def close(self) -> None:
        for _, process in self.running.values():
            process.kill()
        self.running = {}


def _places(resources: Resources, workers: int | None) -> list[str | None]:
    """The GPU of each job that may run at a time, by the name that CUDA_VISIBLE_DEVICES knows; None is the CPU."""
    gpus = visible_gpus()
    share = resources.gpus if resources.gpus is not None else float(bool(gpus))
    if not share:
        return [None] * (workers or max(1, (os.cpu_count() or 1) // resources.cpus))
    if not gpus:
        without = f"{argument('device', 'cpu')} does without"
        raise BadInput(f"resources.gpus is {share:g}, and this machine has no GPU: {without}")
    # one after the other, so that few workers spread over many GPUs
    places: list[str | None] = [*gpus] * int(1 / share)
    if workers is not None and workers > len(places):
        fit = f"{len(places)} runs with {share:g} of a GPU each fit on {len(gpus)}"
        raise BadInput(f"{argument('workers', workers)}: {fit}; a smaller resources.gpus lets more of them share one")
    return places[:workers]


def visible_gpus() -> list[str]:
    """By the names that CUDA_VISIBLE_DEVICES uses, as far as we may see them ourselves."""
    if not torch.cuda.is_available():
        return []
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    return asked.split(",") if asked else [str(index) for index in range(torch.cuda.device_count())]
