"""One job in a process of its own, so that its end, however bad, is the end of nothing else.

It gets its order as a line on stdin, and stops politely when stdin ends: on request, or because whoever started it is
no more.  So a sweep that was killed leaves nothing running that writes into its folders.
"""

import json
import os
import signal
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import torch

from longreach.config import build
from longreach.errors import BadInput, RunFailed
from longreach.runs import LOCK, RunConfig, RunFolder, choose_device, execute_together, gather_info, wait_for_lock
from longreach.sweep.courier import Courier
from longreach.sweep.order import Order
from longreach.sweep.progress import Recorder
from longreach.sweep.storage import open_storage
from longreach.train import ask_for_repeatable_products

TOLD = "longreach: "
"""What a line of the log begins with that says why a job failed."""
STOPPED = 130
"""The exit code of a job that was asked to stop: everything is saved."""


def main() -> int:
    print(f"process {os.getpid()} on {socket.gethostname()}", flush=True)
    order = Order(**json.loads(_read_line()))
    stop = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(stop,), daemon=True).start()

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, ask_to_stop)
    try:
        return _work(order, stop)
    except (BadInput, RunFailed) as error:
        for line in error.lines:
            text = " ".join(line.split())
            for folder, url in order.stored:
                text = text.replace(folder, url)  # the scratch folder will be gone
            print(f"{TOLD}{text}", flush=True)
        return 2 if isinstance(error, BadInput) else 1


def _work(order: Order, stop: threading.Event) -> int:
    torch.set_num_threads(order.threads)
    folders = [RunFolder(Path(path)) for path in order.folders]
    couriers = {Path(folder): Courier(Path(folder), open_storage(url)) for folder, url in order.stored}
    with ExitStack() as held:
        for folder in folders:
            # an earlier process that has lost its sweep may still be saving
            if not held.enter_context(wait_for_lock(folder.path / LOCK, stop.is_set, _say)):
                return STOPPED
        for courier in couriers.values():
            if not held.enter_context(courier.at_work(stop.is_set)):
                return STOPPED

        def beat() -> None:
            for courier in couriers.values():
                courier.beat()

        def saved(folder: RunFolder) -> None:
            if folder.path in couriers:
                couriers[folder.path].send()

        recorder = Recorder([folder.path for folder in folders if not folder.finished], beat)
        configs = [build(RunConfig, config) for config in order.configs]
        if any(config.train.deterministic for config in configs):
            ask_for_repeatable_products(order.device)  # before the device is looked at
        device = choose_device(order.device)
        runs = list(zip(order.variants, order.seeds, strict=True))
        stack = ["/".join(filter(None, (variant, f"seed-{seed}"))) for variant, seed in runs] if len(runs) > 1 else []
        infos = [gather_info(order.recipe, order.title, variant, seed, device, stack) for variant, seed in runs]
        observer = recorder.observer(stop.is_set, saved)
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


def _wait_for_the_end(stop: threading.Event) -> None:
    while os.read(0, 1):
        pass
    stop.set()
