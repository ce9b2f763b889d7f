"""Runs that are killed again and again, and resumed every time: `python crashing.py OUT CONFIG KILLS DEVICE SEED...`.

Children are forked from a process that has imported everything and computed nothing, so that a start takes no seconds.
In turn, one is killed at a random moment and one in the midst of writing a file.
"""

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from longreach.config import build, read_yaml
from longreach.runs import RunConfig, RunFolder, execute_together, gather_info
from longreach.system import files
from longreach.training import ask_for_repeatable_products


def main(out: Path, config: RunConfig, kills: int, device: str, seeds: list[int]) -> None:
    folders = [RunFolder(out / f"seed-{seed}") for seed in seeds]
    moments = random.Random(kills)
    longest = 0.6 if device == "cpu" else 8.0  # a GPU takes seconds to start and to record a step

    def work() -> None:
        torch.set_num_threads(1)
        ask_for_repeatable_products(device)
        stack = [f"seed-{seed}" for seed in seeds] if len(seeds) > 1 else []
        infos = [gather_info("crash", "", "", seed, device, stack) for seed in seeds]
        execute_together([config] * len(seeds), folders, infos, device, resume=True)

    for number in range(kills):
        if number % 2:
            doomed = _fork(work, dies_in_write=moments.randrange(1, 12 * len(seeds)))
        else:
            doomed = _fork(work)
            time.sleep(moments.uniform(0, longest))
            os.kill(doomed, signal.SIGKILL)
        if _status(doomed) != -signal.SIGKILL:
            sys.exit(f"the run ended before kill {number + 1}: give it more steps")
    if _status(_fork(work)) != 0:
        sys.exit("the last start failed")


def _fork(work: Callable[[], None], dies_in_write: int = 0) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if dies_in_write:
            _die_in(dies_in_write)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _die_in(write: int) -> None:
    """Kill this process in one of the writes to come: when half of it is on the disk, or just before or after it gets
    its name."""
    steps = iter(range(1, 10**9))
    flush, rename = os.fsync, os.replace

    def dying_flush(file: int) -> None:
        if next(steps) == write:
            os.ftruncate(file, os.fstat(file).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        flush(file)

    def dying_rename(source: Path, target: Path) -> None:
        if next(steps) == write:
            if write % 4 < 2:
                rename(source, target)
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    files.os.fsync, files.os.replace = dying_flush, dying_rename


def _status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    place, settings, count, device, *numbers = sys.argv[1:]
    seeds = [int(number) for number in numbers]
    main(Path(place), build(RunConfig, read_yaml(Path(settings))), int(count), device, seeds)
