"""Batches of tasks in plain Python: drawn on the CPU, by worker processes ahead of training or by training itself.

The batch of a step is a function of the seed and the step, so it does not matter which process draws it: a run has the
same batches with any number of workers.  On a GPU, IDs are drawn on the CPU too, with and without workers.
"""

import io
import json
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from longreach.engine.drawing_process import Layout, Order
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
_AHEAD = 2
"""Batches that each worker draws ahead: it begins the second while the first waits."""
_COPIES = 3
"""Batches on their way to a GPU: the training process is ahead of the GPU by at most as many steps."""
_PATIENCE = 5.0
"""Seconds in which processes must end."""
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " size = int.from_bytes(sys.stdin.buffer.read(8), 'little'); data = sys.stdin.buffer.read(size);"
    " from longreach.engine.drawing_process import serve; serve(data)"
)
"""The program of a server.  It reads its order before it imports torch, which takes seconds."""

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
            layout = Layout.of(batch)
            return _read(batch, layout, self._copies(layout).copy(lambda pinned: layout.write(batch, pinned)))
        block = self.pool.take(number)
        self._logged.add(time.perf_counter() - begun)
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

    def read_news(self) -> list[str]:
        """Return lines about drawing for the user, each once.  The training loop asks whenever it logs."""
        share, news = self._logged.restart(), self._news
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

    def _draw_here(self, number: int, begun: float) -> Batch:
        batch = self.stream.batch(number)
        seconds = time.perf_counter() - begun
        self._logged.add(seconds)
        self._measured.add(seconds)
        if self.pool is None and self.workers:
            if self.at_once:
                self._start(batch)
            elif self._measured.seconds >= _SECONDS and self._measured.count > 1:
                share = self._measured.restart()
                if share > SLOW:
                    self._start(batch)
                    self._news.append(f"drawing takes {share:.0%} of the time: {_processes(self.workers)}")
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

    def _copies(self, layout: Layout) -> "_PinnedCopies":
        if self._pinned is None:
            self._pinned = _PinnedCopies(layout.size, self.device)
        return self._pinned


class Pool:
    """Worker processes that draw the batches of a stream ahead of training.

    Worker i of n draws the steps i, i + n, i + 2n, ...  Batches are taken in the order of their steps.
    """

    def __init__(self, stream: Stream, template: Batch, workers: int, steps: int) -> None:
        self.template, self.layout, self.steps = template, Layout.of(template), steps
        self.checked = False
        """Whether the first batch of a worker was compared with that of the training process."""
        self.error: str | None = None
        """The last error of a worker."""
        self.slots = _AHEAD * workers
        self.next = self.asked = 0
        """The step that is expected to be taken, and the first that no worker was asked for."""
        pairs = [socket.socketpair() for _ in range(workers)]
        self.connections = [Connection(ours.detach()) for ours, _ in pairs]
        self.starting = list(self.connections)
        self.pids: list[int] = []
        """The process IDs of the workers that have started."""
        theirs = [one for _, one in pairs]
        memory = _shared_memory(self.layout.size * self.slots)
        self.blocks = torch.frombuffer(mmap.mmap(memory, self.layout.size * self.slots), dtype=torch.uint8).view(
            self.slots, -1
        )
        numbers = tuple(one.fileno() for one in theirs)
        order = Order(pickle.dumps(stream), self.layout, memory, self.slots, numbers)
        self.process = _start_server((*numbers, memory), pickle.dumps(order))
        os.close(memory)
        for one in theirs:
            one.close()
        self._finalizer = weakref.finalize(self, _end, self.process, self.connections, self.starting)

    def is_ready(self) -> bool:
        """Return whether all workers have started; `error` says why they never will."""
        for connection in [one for one in self.starting if one.poll()]:
            try:
                answer: int | str = connection.recv()
            except (EOFError, OSError):
                answer = "it ended while it started"
            if isinstance(answer, int):
                self.pids.append(answer)
            else:
                self.error = answer
            self.starting.remove(connection)
        return not self.starting and self.error is None

    def take(self, step: int) -> Tensor | None:
        """Return the block of a step, valid until the next call, or None if the worker failed: see `error`."""
        if step != self.next:
            while self.next < self.asked:
                self._receive(self.next)
                self.next += 1
            self.next = self.asked = step
        while self.asked < step + self.slots and (self.asked < self.steps or self.asked == step):
            try:
                self._connection(self.asked).send((self.asked, self.asked % self.slots))
            except OSError as error:
                raise _killed() from error
            self.asked += 1
        self.error = self._receive(step)
        self.next = step + 1
        return self.blocks[step % self.slots] if self.error is None else None

    def read(self, block: Tensor) -> Batch:
        """Return the batch that lies in a block."""
        return _read(self.template, self.layout, block)

    def close(self) -> None:
        """End all processes."""
        self._finalizer()

    def _connection(self, step: int) -> Connection:
        return self.connections[step % len(self.connections)]

    def _receive(self, step: int) -> str | None:
        try:
            answer: str | None = self._connection(step).recv()
        except (EOFError, OSError) as error:
            raise _killed() from error
        return answer


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
        """The time since the start."""
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


def _read(template: Batch, layout: Layout, block: Tensor) -> Batch:
    views = layout.views(block)
    return template.map(lambda _: next(views))


def _processes(count: int) -> str:
    if count == 0:
        return "the training process draws them"
    return "1 process draws them ahead" if count == 1 else f"{count} processes draw them ahead"


def _killed() -> RunFailed:
    return RunFailed(
        "a process that draws batches was killed: if memory is short, a smaller execution.workers needs less"
    )


def _shared_memory(size: int) -> int:
    """Return the file descriptor of memory that processes can share and that no name leads to."""
    if hasattr(os, "memfd_create"):  # not in /dev/shm, which containers keep small
        number = os.memfd_create("longreach batches")
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    os.ftruncate(number, size)
    return number


def _start_server(shared: tuple[int, ...], order: bytes) -> "subprocess.Popen[bytes]":
    """Start a server with the path of this process, and send it its order."""
    blocked = {signal.SIGINT, signal.SIGTERM}
    # one thread each: the workers are as many as there are cores
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)  # inherited: Python prints a traceback if interrupted
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            pass_fds=shared,
            env=environment,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # a server that is gone closes its connections, which tells
        process.stdin.write(len(order).to_bytes(8, "little") + order)
        process.stdin.flush()
    return process


def _end(process: "subprocess.Popen[bytes]", connections: list[Connection], starting: list[Connection]) -> None:
    """End a server and its workers, and wait for their end."""
    assert process.stdin is not None
    if starting:
        process.kill()  # it may be importing for seconds
    with suppress(BrokenPipeError):
        process.stdin.close()  # ends the workers
    until = time.monotonic() + _PATIENCE
    for connection in connections:
        with suppress(EOFError, OSError):
            while connection.poll(max(0.0, until - time.monotonic())):
                connection.recv()
        connection.close()
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
