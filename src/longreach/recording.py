"""Recording GPU work to replay it: one recording at a time, whatever other threads do meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def record(graph: "torch.cuda.CUDAGraph") -> Iterator[None]:
    """What is launched inside is not computed but kept in `graph`.

    A recording begins with waiting for the whole device, which would break the recording of another thread.
    """
    with _ONE_AT_A_TIME, torch.cuda.graph(graph, capture_error_mode="thread_local"):
        yield
