"""What all kernels of ours need to know about the device that they run on."""

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether kernels can be compiled at all: Triton comes with torch's builds for GPUs."""
PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)
"""Of numbers that they compute with, all in fp32."""


def on_its_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device, whatever the tensors lie on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def multiprocessors(tensor: Tensor) -> int:
    """Of the GPU that a tensor lies on; Triton's interpreter, on a CPU, does one thing at a time."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def beside(device: torch.device, compute: Callable[[], object]) -> Callable[[], None]:
    """Compute something on a second stream of a GPU, beside what the current one is given next; calling what is
    returned lets the current one wait for it.  What it writes to must have been allocated before."""
    if device.type != "cuda":
        compute()
        return lambda: None
    current, second = torch.cuda.current_stream(device), _second_stream(device)
    second.wait_stream(current)
    with torch.cuda.stream(second):
        compute()
    return lambda: current.wait_stream(second)
