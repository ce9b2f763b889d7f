"""`sweep`: run what is left of a sweep."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from longreach.errors import BadInput, argument
from longreach.sweeps import (
    Backend,
    LocalBackend,
    Mirror,
    Resources,
    RunState,
    SweepPlan,
    Watcher,
    check_plan,
    check_writable,
    drive,
    is_url,
    make_plan,
    open_mirror,
    open_storage,
    read_states,
    scratch_folder,
    sole_driver,
)
from longreach.system.interrupts import deferred, ending_with_us
from longreach.terminal.console import say
from longreach.terminal.sweep_table import live_table, warning_if_long


def sweep(
    file: str | Path,
    *,
    out: str | Path | None = None,
    backend: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    retry_failed: bool = False,
    scratch: str | Path | None = None,
    progress: bool = True,
) -> list[RunState]:
    """Run what is left of a sweep and return the state of every run.

    Args:
        file: A sweep file.
        out: Folder of the sweep, or a URL of shared storage; by default runs/NAME.
        backend: `local` starts processes of this machine, `ray` jobs of a Ray cluster.
        address: Address of a Ray cluster.
        workers: Runs at a time; by default as many as there is room for.
        device: `auto` takes GPUs where there are any; replaces `execution.device` of the runs.
        retry_failed: Try runs again that were given up.
        scratch: With a URL: where each machine keeps its working files.
        progress: Show a live table on a terminal.

    Raises:
        BadInput: The sweep file or an argument is wrong.
    """
    check_backend(backend, address, workers)
    plan = make_plan(Path(file))
    place = None if out is None else str(out)
    with open_results(Path(file), place, None if scratch is None else Path(scratch)) as (folder, mirror):
        resources = resources_on(plan.file.resources, device or plan.device)
        check_plan(plan, folder, device=device_here(backend, resources))
        quiet = not (progress and say.is_terminal)
        tell: Callable[[str], None] = (lambda line: None) if quiet else tell_on_stderr
        drive_plan(
            plan, folder, mirror, lambda: make_backend(backend, resources, address, workers), retry_failed, quiet, tell
        )
        return read_states(plan, folder)


def check_backend(backend: str, address: str | None, workers: int | None) -> None:
    """Raise BadInput for arguments that no backend takes."""
    if address and backend != "ray":
        raise BadInput(f"{argument('address')} needs {argument('backend', 'ray')}")
    if workers is not None and workers < 1:
        raise BadInput(f"{argument('workers')} must be at least 1, got {workers}")


@contextmanager
def open_results(file: Path, out: str | None, scratch: Path | None = None) -> Iterator[tuple[Path, Mirror | None]]:
    """Yield the folder of a sweep; for a sweep in storage, the folder of a temporary mirror."""
    if not out or not is_url(out):
        if scratch is not None:
            named = f"{argument('scratch')} needs a URL as {argument('out')}"
            raise BadInput(f"{named}: in a folder, runs are worked on where they lie")
        yield Path(out) if out else Path("runs") / file.stem, None
        return
    with open_mirror(open_storage(out), scratch_folder(out, scratch)) as mirror:
        try:
            yield mirror.folder, mirror
        except BadInput as error:  # what is wrong with the mirror is wrong with the storage
            raise BadInput(*(line.replace(str(mirror.folder), mirror.storage.url) for line in error.lines)) from error


def resources_on(asked: Resources, device: str) -> Resources:
    """Return the resources of a run on a device."""
    if device == "cpu":
        return replace(asked, gpus=0.0)
    if device == "cuda":
        return replace(asked, gpus=asked.gpus or 1.0)
    return asked


def device_here(backend: str, resources: Resources) -> str | None:
    """Return the device of the runs if they are trained on this machine; None also for a GPU that it lacks."""
    if backend != "local":
        return None
    if resources.gpus == 0 or (resources.gpus is None and not torch.cuda.is_available()):
        return "cpu"
    return "cuda" if torch.cuda.is_available() else None


def make_backend(name: str, resources: Resources, address: str | None, workers: int | None) -> Backend:
    """Return the backend that starts jobs."""
    if name == "local":
        return LocalBackend(resources, workers)
    from longreach.sweeps.backends.ray import RayBackend  # Ray is an extra

    return RayBackend(resources, address, workers)


def drive_plan(
    plan: SweepPlan,
    folder: Path,
    mirror: Mirror | None,
    backend: Callable[[], Backend],
    retry_failed: bool,
    quiet: bool,
    tell: Callable[[str], None],
) -> bool:
    """Drive a sweep with a live table; return False if interrupted, with everything saved."""
    if mirror is not None:
        check_writable(mirror.storage)
    url = "" if mirror is None else mirror.storage.url
    with (
        # storage has no locks: at least on this machine there is one driver
        sole_driver(folder) if mirror is None else sole_driver(scratch_folder(url), url),
        closing(backend()) as jobs,
        ending_with_us(jobs.kill),
        deferred(lambda: "every run goes on from its newest checkpoint") as should_stop,
        live_table(plan, folder, quiet, (lambda: None) if mirror is None else mirror.look) as show,
    ):
        warn = warning_if_long(plan, folder, tell)

        def look() -> None:
            show()
            warn()

        return drive(plan, folder, jobs, Watcher(tell, look, should_stop), retry_failed, mirror)


def tell_on_stderr(line: str) -> None:
    """Print a line on stderr."""
    say.print(line, markup=False, highlight=False, soft_wrap=True)
