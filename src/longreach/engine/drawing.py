"""Batches of tasks in plain Python: drawn on the CPU, by worker processes ahead of training or by training itself.

The batch of a step is a function of the seed and the step, so it does not matter which process draws it: a run has the
same batches with any number of workers.  On a GPU, IDs are drawn on the CPU too, with and without workers.
"""

import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from longreach.engine.drawing_pool import Pool, read_block
from longreach.engine.drawing_process import BatchLayout
from longreach.engine.stacked_training import MultiSeedStream, StackedStream
from longreach.errors import BadInput, RunFailed
from longreach.execution import ExecutionConfig
from longreach.objectives import Batch
from longreach.system.imports import is_importable
from longreach.training.stream import BatchStream, TrainingStream

MOST_WORKERS = 16
"""The most workers that are started without being asked for."""
SLOW = 0.1
"""The share of time spent on drawing from which workers are started, and from which the user is told."""
_SECONDS = 2.0
"""Time over which the share is measured before workers are started."""
_COPIES = 3
"""Batches on their way to a GPU: the training process is ahead of the GPU by at most as many steps."""
Stream = TrainingStream | StackedStream


def draws_on_host(data: BatchStream) -> bool:
    """Return whether a task of a stream draws its samples in Python on the CPU."""
    tasks = [part.task for part in data.parts] if isinstance(data, StackedStream) else []
    if isinstance(data, TrainingStream):
        tasks = [data.task]
    return any(task.draws_on_host for task in tasks)


def count_workers(execution: ExecutionConfig) -> int:
    """Return the number of workers: as set, or one for each core but one that this process may use."""
    if execution.workers is not None:
        return execution.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    # torchrun sets one thread for each of its processes; otherwise their number says what a job may use
    cores = cores // ranks if ranks > 1 else min(cores, torch.get_num_threads())
    return max(0, min(MOST_WORKERS, cores - 1))


def why_not_sent(data: Stream) -> str:
    """Return why another process cannot draw the batches of a stream; empty if it can."""
    pickler = _ModuleCollector(io.BytesIO())
    try:
        pickler.dump(_on_cpu(data))
    except Exception as error:  # of a class of the user's
        return f"the task cannot be sent to another process: {error}"
    for module in sorted(pickler.modules):
        if module == "__main__":
            return "the task is defined in the main script; move it to a module of its own"
        if not is_importable(module):
            return f"another process would not import the same module {module}"
    return ""


class HostStream:
    """A stream whose batches are drawn on the CPU and copied to the device of training."""

    def __init__(self, stream: Stream, workers: int = 0, at_once: bool = True, steps: int = sys.maxsize) -> None:
        """`at_once` starts the workers with the first batch; otherwise they start if drawing is slow.

        Workers draw no batch from `steps` on.
        """
        self.stream, self.device = _on_cpu(stream), stream.device
        self.workers, self.at_once, self.steps = workers, at_once, steps
        self.models = stream.models if isinstance(stream, MultiSeedStream | StackedStream) else 1
        self.pool: Pool | None = None
        self._pinned: _PinnedCopies | None = None
        self._measured, self._logged = _Share(), _Share()
        self.waited = 0.0
        """Seconds that training has waited for batches."""
        self._news: list[str] = []
        self._told = False

    @property
    def most_answer_tokens(self) -> int:
        return self.stream.most_answer_tokens

    def batch(self, step: int | Tensor) -> Batch:
        """Return the batch of a step on the device of training."""
        number = int(step)
        begun = time.perf_counter()
        if self.pool is None or not self._is_started(self.pool):
            batch = self._draw_here(number, begun)
            if not self._on_gpu:
                return batch
            layout = BatchLayout.of(batch)
            return read_block(batch, layout, self._copies(layout).copy(lambda pinned: layout.write(batch, pinned)))
        block = self.pool.take(number)
        self._note_waiting(time.perf_counter() - begun)
        if block is None:
            self.stream.batch(number)  # raises the error of the worker, with its own traceback
            raise RunFailed(f"a process could not draw the batch of step {number}: {self.pool.error}")
        if not self.pool.checked:
            self._check(self.pool, number, block)
        if not self._on_gpu:
            return self.pool.read(block.clone())  # a worker will overwrite the block
        return self.pool.read(self._copies(self.pool.layout).copy(lambda pinned: pinned.copy_(block)))

    def wait_for_workers(self) -> None:
        """Start the workers and wait until they are ready, for measurements and tests."""
        if self.workers and self.pool is None:
            self._start(self.stream.batch(0))
        while self.pool is not None and not self._is_started(self.pool):
            time.sleep(0.01)

    def measure_waiting(self) -> float:
        """Return the share of time since the last call in which training waited for batches."""
        return self._logged.restart()

    def read_news(self) -> list[str]:
        """Return lines about drawing for the user, each once.  The training loop asks whenever it logs."""
        share, news = self.measure_waiting(), self._news
        self._news = []
        settled = self.workers == 0 or (self.pool is not None and self.pool.checked)
        if share > SLOW and settled and not self._told:
            self._told = True
            news.append(
                f"training waits for batches {share:.0%} of the time ({_processes(self.workers)}):"
                " more execution.workers, or a vectorised task, would make it faster"
            )
        return news

    def close(self) -> None:
        """End the workers."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None
            self.workers = 0

    def _note_waiting(self, seconds: float) -> None:
        self._logged.add(seconds)
        self.waited += seconds

    def _draw_here(self, number: int, begun: float) -> Batch:
        batch = self.stream.batch(number)
        seconds = time.perf_counter() - begun
        self._note_waiting(seconds)
        self._measured.add(seconds)
        if self.pool is None and self.workers:
            if self.at_once:
                self._start(batch)
            elif self._measured.seconds >= _SECONDS and self._measured.count > 1:
                share = self._measured.restart()
                if share > SLOW:
                    self._start(batch)
                    self._news.append(f"drawing batches takes {share:.0%} of the time: {_processes(self.workers)}")
        return batch

    def _start(self, batch: Batch) -> None:
        self.pool = Pool(self.stream, batch, self.workers, self.steps)

    def _is_started(self, pool: "Pool") -> bool:
        """Return whether the workers are ready.  If they did not start, training draws its batches itself."""
        if pool.error is None and pool.is_ready():
            return True
        if pool.error is not None:
            self._news.append(f"training draws its batches itself, for no process could be started: {pool.error}")
            self.close()
        return False

    def _check(self, pool: "Pool", number: int, block: Tensor) -> None:
        """Raise BadInput if a worker draws another batch than the training process."""
        own = self.stream.batch(number)
        if not all(torch.equal(*pair) for pair in zip(pool.layout.views(block), own.tensors(), strict=True)):
            raise BadInput(
                f"{own.task.name}: two processes draw different samples from one `rng`: all randomness must come from"
                " it, and the order of a set differs between processes"
            )
        pool.checked = True
        self._logged.restart()  # the time until here says nothing of the rest

    @property
    def _on_gpu(self) -> bool:
        return torch.device(self.device).type == "cuda"

    def _copies(self, layout: BatchLayout) -> "_PinnedCopies":
        if self._pinned is None:
            self._pinned = _PinnedCopies(layout.size, self.device)
        return self._pinned


class _PinnedCopies:
    """Copies blocks to a GPU through pinned memory, so that the training process does not wait for the copy."""

    def __init__(self, size: int, device: str) -> None:
        self.device, self.turn = device, 0
        self.pinned = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(_COPIES)]
        self.copied = [torch.cuda.Event() for _ in range(_COPIES)]  # type: ignore[no-untyped-call]

    def copy(self, fill: Callable[[Tensor], object]) -> Tensor:
        """Return a block on the GPU with what `fill` writes into pinned memory."""
        pinned, copied = self.pinned[self.turn], self.copied[self.turn]
        self.turn = (self.turn + 1) % _COPIES
        copied.synchronize()  # the GPU may still be reading what was written a few steps ago
        fill(pinned)
        found = pinned.to(self.device, non_blocking=True)
        copied.record(torch.cuda.current_stream(self.device))
        return found


class _Share:
    """The share of time that is spent on something."""

    def __init__(self) -> None:
        self.begun, self.spent, self.count = time.perf_counter(), 0.0, 0

    def add(self, seconds: float) -> None:
        self.spent += seconds
        self.count += 1

    @property
    def seconds(self) -> float:
        """Return the time since the start."""
        return time.perf_counter() - self.begun

    def restart(self) -> float:
        """Return the share since the last start, and start again."""
        share = self.spent / max(self.seconds, 1e-9)
        self.begun, self.spent, self.count = time.perf_counter(), 0.0, 0
        return share


class _ModuleCollector(pickle.Pickler):
    """Collects the modules that a process must import to unpickle an object."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def persistent_id(self, part: Any) -> None:
        if isinstance(part, type | FunctionType):
            self.modules.add(part.__module__)


@contextmanager
def closing_workers(data: BatchStream) -> Iterator[None]:
    """End the workers of a stream, if it has any, at the end of the block."""
    try:
        yield
    finally:
        if isinstance(data, HostStream):
            data.close()


def _on_cpu(stream: Stream) -> Stream:
    if isinstance(stream, StackedStream):
        return replace(stream, parts=tuple(replace(part, device="cpu") for part in stream.parts))
    return replace(stream, device="cpu")


def _processes(count: int) -> str:
    if count == 0:
        return "the training process draws them"
    return "1 process draws them ahead" if count == 1 else f"{count} processes draw them ahead"
