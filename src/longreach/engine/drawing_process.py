"""The processes that draw batches ahead of training.

The training process starts one server.  The server imports the task's module, forks the workers and waits for their
end.  It never touches a GPU, and it has one thread, so that forking is safe whatever the training process has done.
A worker reads the number of a step from its connection, draws the batch of the step, and writes it into memory that
it shares with the training process.

No process outlives the training process: the server's standard input is a pipe that only the training process can
write to, and a thread of each worker ends the worker when the pipe is closed.
"""

import mmap
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NoReturn

import torch
from torch import Tensor

from longreach.errors import BadInput
from longreach.objectives import Batch
from longreach.training.stream import BatchStream

_ALIGNMENT = 64
"""Bytes; a tensor of any type may start at a multiple of it."""


@dataclass(frozen=True)
class BatchLayout:
    """The places of a batch's tensors in one block of bytes.  All batches of a stream have the same shapes."""

    tensors: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    @classmethod
    def of(cls, batch: Batch) -> "BatchLayout":
        return cls(tuple((tuple(tensor.shape), tensor.dtype) for tensor in batch.tensors()))

    @property
    def size(self) -> int:
        """Return the bytes of a block."""
        return sum(_aligned(_bytes(shape, dtype)) for shape, dtype in self.tensors)

    def views(self, block: Tensor) -> Iterator[Tensor]:
        """Yield the tensors that lie in a block, which may be on any device."""
        start = 0
        for shape, dtype in self.tensors:
            count = _bytes(shape, dtype)
            yield block[start : start + count].view(dtype).view(shape)
            start += _aligned(count)

    def write(self, batch: Batch, block: Tensor) -> None:
        """Copy a batch into a block."""
        if BatchLayout.of(batch) != self:
            raise BadInput(f"{batch.task.name}: the shapes of two batches differ; all must be as wide as max_tokens")
        for place, tensor in zip(self.views(block), batch.tensors(), strict=True):
            place.copy_(tensor)


def _bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    return torch.Size(shape).numel() * dtype.itemsize


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True)
class DrawingOrder:
    """The work of a server."""

    stream: bytes
    """A pickled stream on the CPU."""
    layout: BatchLayout
    memory: int
    """The file descriptor of the shared memory."""
    slots: int
    """Blocks in the shared memory."""
    connections: tuple[int, ...]
    """A file descriptor for each worker."""


def serve(data: bytes) -> NoReturn:
    """Start the workers of a pickled order, and end the process when all have ended."""
    try:
        _serve(data)
    finally:
        os._exit(0)  # without a traceback, and without the time that torch takes to leave


def _serve(data: bytes) -> None:
    # Ctrl-C and `timeout` signal all processes of a group.  The training process decides what happens then, and closes
    # the pipe; both signals have been blocked by it until here.
    ignored = (signal.SIGINT, signal.SIGTERM)
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ignored)
    order: DrawingOrder = pickle.loads(data)
    try:
        stream: BatchStream = pickle.loads(order.stream)
    except Exception as error:
        for number in order.connections:
            Connection(number).send(f"{type(error).__name__}: {error}")
        return
    memory = mmap.mmap(order.memory, order.layout.size * order.slots)
    blocks = torch.frombuffer(memory, dtype=torch.uint8).view(order.slots, -1)
    others = list(order.connections)
    for number in order.connections:
        others.remove(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of threads that libraries start
            is_worker = os.fork() == 0
        if is_worker:
            for other in others:
                os.close(other)
            _work(stream, order.layout, blocks, Connection(number))
        os.close(number)
    for _ in order.connections:
        os.wait()


def _work(stream: BatchStream, layout: BatchLayout, blocks: Tensor, connection: Connection) -> NoReturn:
    """Draw batches until the training process closes the connection."""
    try:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        connection.send(os.getpid())
        while True:
            step, slot = connection.recv()
            try:
                layout.write(stream.batch(step), blocks[slot])
            except BaseException as error:  # the training process draws the batch again, and raises the error there
                connection.send(f"{type(error).__name__}: {error}")
            else:
                connection.send(None)
    except (EOFError, OSError):
        pass  # the training process has closed the connection, or is gone
    finally:
        os._exit(0)


def _end_with_parent() -> None:
    """End the process when the training process closes the pipe or is gone, also in the middle of a batch."""
    sys.stdin.buffer.read(1)
    os._exit(0)
