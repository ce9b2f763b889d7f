"""The processes that train one model together: torchrun starts and numbers them, and each is a rank.

What is written is written by the first rank.  All of them go through the same steps, and whatever may differ between
them (a wish to stop, the step to begin with) is agreed upon here.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from longreach.errors import BadInput, RunFailed

_PATIENCE = timedelta(days=7)
"""How long ranks wait while the first tests.  One that is gone is noticed at once, by its closed connection."""
_GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed")
"""As gloo says it."""


@dataclass(frozen=True)
class Ranks:
    number: int = 0
    count: int = 1
    patient: "dist.ProcessGroup | None" = None
    """Their connection for words between hosts, on which nothing of a GPU waits."""

    @property
    def first(self) -> bool:
        return self.number == 0

    def rows(self, total: int) -> slice:
        """This rank's part of a batch."""
        share = total // self.count
        return slice(self.number * share, (self.number + 1) * share)

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether it is true on any rank.  All wait for each other."""
        if self.count == 1:
            return flag
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags, group=self.patient)
        return bool(flags)

    def wait(self) -> None:
        """Until all are here."""
        self.any(False)

    def hear(self, value: int = 0) -> int:
        """The first rank's value; what the others say does not count."""
        if self.count == 1:
            return value
        word = torch.tensor(int(value))  # a bool would be sent as fewer bytes than the others expect
        dist.broadcast(word, src=0, group=self.patient)
        return int(word)


ALONE = Ranks()


def processes() -> int:
    """As many as torchrun started, or one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def join_ranks(device: str) -> Iterator[tuple[Ranks, str]]:
    """This process as one of those that torchrun started, and the device that is its own."""
    count = processes()
    if count == 1:
        yield ALONE, device
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        device = _own_gpu(device, int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    patient = dist.new_group(backend="gloo", timeout=_PATIENCE)
    number = dist.get_rank()
    try:
        yield Ranks(number, count, patient), device
    except (BadInput, RunFailed) as error:
        raise type(error)(f"process {number}: {error}" if number else str(error)) from error
    except RuntimeError as error:
        if not any(phrase in str(error) for phrase in _GONE):
            raise
        raise RunFailed(f"process {number}: another one is gone, and its own line says why") from error
    # where something went wrong the process ends, which tells the others; taking leave might wait for them
    dist.destroy_process_group()


def _own_gpu(device: str, number: int) -> str:
    if torch.device(device).index is not None:
        raise BadInput(f"--device {device} is one GPU for several processes: use --device cuda")
    if number >= torch.cuda.device_count():
        raise BadInput(f"process {number} has no GPU of its own: this machine has {torch.cuda.device_count()}")
    torch.cuda.set_device(number)
    return f"cuda:{number}"
