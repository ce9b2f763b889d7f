"""What all kernels of ours need to know about the device that they run on."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def on_its_device(tensor: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device, whatever the tensors lie on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def multiprocessors(tensor: Tensor) -> int:
    """Of the GPU that a tensor lies on; Triton's interpreter, on a CPU, does one thing at a time."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1
