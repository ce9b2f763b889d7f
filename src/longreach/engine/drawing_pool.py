"""The training process's side of the processes that draw batches: their start, their batches and their end."""

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
from contextlib import suppress
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from longreach.engine.drawing_process import BatchLayout, DrawingOrder
from longreach.errors import RunFailed
from longreach.objectives import Batch
from longreach.training.stream import BatchStream

_AHEAD = 2
"""Batches that each worker draws ahead: it begins the second while the first waits."""
_PATIENCE = 5.0
"""Seconds in which processes must end."""
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " size = int.from_bytes(sys.stdin.buffer.read(8), 'little'); data = sys.stdin.buffer.read(size);"
    " from longreach.engine.drawing_process import serve; serve(data)"
)
"""The program of a server.  It reads its order before it imports torch, which takes seconds."""


class Pool:
    """Worker processes that draw the batches of a stream ahead of training.

    Worker i of n draws the steps i, i + n, i + 2n, ...  Batches are taken in the order of their steps.
    """

    def __init__(self, stream: BatchStream, template: Batch, workers: int, steps: int) -> None:
        self.template, self.layout, self.steps = template, BatchLayout.of(template), steps
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
        order = DrawingOrder(pickle.dumps(stream), self.layout, memory, self.slots, numbers)
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
        return read_block(self.template, self.layout, block)

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


def read_block(template: Batch, layout: BatchLayout, block: Tensor) -> Batch:
    """Return the batch that lies in a block, with the task of another batch of its stream."""
    views = layout.views(block)
    return template.map(lambda _: next(views))


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
