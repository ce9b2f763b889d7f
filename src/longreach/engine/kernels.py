"""What all kernels of ours need to know about the device that they run on."""

import importlib.util
from contextlib import AbstractContextManager, nullcontext

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
