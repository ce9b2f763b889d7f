"""Several runs at once in one process: small models leave most of a GPU idle."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import torch


def run_together(jobs: Sequence[Callable[[Callable[[], bool]], bool]], at_once: int, device: str) -> bool:
    """Call every job, at most so many at once, each on a stream of its own; False if one of them says so.

    A job is handed a question that it should ask between steps: whether to stop, because another one failed or was
    stopped.  The first failure is raised when all have ended.
    """
    over = False

    def call(job: Callable[[Callable[[], bool]], bool]) -> bool:
        nonlocal over
        if over:
            return False
        shared = at_once > 1 and "cuda" in device
        try:
            with torch.cuda.stream(torch.cuda.Stream(device)) if shared else nullcontext():  # type: ignore[no-untyped-call]
                finished = job(lambda: over)
        except BaseException:
            over = True
            raise
        over = over or not finished
        return finished

    if at_once == 1:  # in this thread, which is the one that a second Ctrl-C stops at once
        return all(call(job) for job in jobs)
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(call, job) for job in jobs]
    results = [future.result() for future in futures]
    return all(results)
