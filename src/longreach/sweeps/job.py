"""One job in a process of its own, so that its end, however bad, is the end of nothing else.

It gets its order as a line on stdin, and stops politely when stdin ends: on request, or because whoever started it is
no more.  So a sweep that was killed leaves nothing running that writes into its folders.  A job that cannot finish its
step within seconds ends without saving it.
"""

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from longreach.errors import BadInput, RunFailed
from longreach.runs import LOCK, RunFolder, build_config, choose_device, execute_together, gather_info, wait_for_lock
from longreach.sweeps.courier import Courier
from longreach.sweeps.order import Order
from longreach.sweeps.progress import Recorder
from longreach.sweeps.storage import open_storage
from longreach.system.interrupts import Interrupts, catch_interrupts, deferred, stop_seconds
from longreach.training import ask_for_repeatable_products

TOLD = "longreach: "
"""What a line of the log begins with that says why a job failed."""
_SHARE = 0.75
"""The part of the seconds to stop in that a job has for itself."""
STOPPED = 130
"""The exit code of a job that was asked to stop: everything is saved."""


def main() -> int:
    print(f"process {os.getpid()} on {socket.gethostname()}", flush=True)
    order = Order(**json.loads(_read_line()))
    try:
        # less time than the sweep itself has, so that the sweep can say how its jobs ended
        seconds = stop_seconds() * _SHARE
        with (
            catch_interrupts(_tell, seconds, linger=True) as interrupts,
            deferred(lambda: "the run goes on from its newest checkpoint") as should_stop,
        ):
            threading.Thread(target=_wait_for_the_end, args=(interrupts,), daemon=True).start()
            return _work(order, should_stop)
    except (BadInput, RunFailed) as error:
        for line in error.lines:
            text = " ".join(line.split())
            for folder, url in order.stored:
                text = text.replace(folder, url)  # the scratch folder will be gone
            _tell(text)
        return 2 if isinstance(error, BadInput) else 1


def _tell(line: str) -> None:
    print(f"{TOLD}{line}", flush=True)


def _work(order: Order, should_stop: Callable[[], bool]) -> int:
    torch.set_num_threads(order.threads)
    folders = [RunFolder(Path(path)) for path in order.folders]
    couriers = {Path(folder): Courier(Path(folder), open_storage(url)) for folder, url in order.stored}
    with ExitStack() as held:
        for folder in folders:
            # an earlier process that has lost its sweep may still be saving
            if not held.enter_context(wait_for_lock(folder.path / LOCK, should_stop, _say)):
                return STOPPED
        for courier in couriers.values():
            if not held.enter_context(courier.at_work(should_stop)):
                return STOPPED

        def beat() -> None:
            for courier in couriers.values():
                courier.beat()

        def saved(folder: RunFolder) -> None:
            if folder.path in couriers:
                couriers[folder.path].send()

        recorder = Recorder([folder.path for folder in folders if not folder.finished], beat)
        configs = [build_config(config) for config in order.configs]
        if any(config.execution.deterministic for config in configs):
            ask_for_repeatable_products(order.device)  # before the device is looked at
        device = choose_device(order.device)
        runs = list(zip(order.variants, order.seeds, strict=True))
        stack = ["/".join(filter(None, (variant, f"seed-{seed}"))) for variant, seed in runs] if len(runs) > 1 else []
        infos = [gather_info(order.recipe, order.title, variant, seed, device, stack) for variant, seed in runs]
        infos = [
            replace(info, command=order.command, **origin)
            for info, origin in zip(infos, order.origins or [{}] * len(infos), strict=True)
        ]
        observer = recorder.observer(should_stop, saved)
        if not execute_together(configs, folders, infos, device, True, observer):
            print("stopped; everything is saved", flush=True)
            return STOPPED
        recorder.finish()
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _read_line() -> bytes:
    """Unbuffered: a thread that sits in a buffered read of stdin cannot be left behind at the end of a process."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 65536)):
        line += more
    return line


def _wait_for_the_end(interrupts: Interrupts) -> None:
    while os.read(0, 1):
        pass
    interrupts.request()
