"""The machine that figures are taken on: its name, its fastest matrix product, its memory."""

import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch


def on_gpu(device: str) -> bool:
    return device.startswith("cuda")


def wait_for(device: str) -> None:
    """Until all that was asked of the device is done."""
    if on_gpu(device):
        torch.cuda.synchronize(device)


def machine_name(device: str) -> str:
    if on_gpu(device):
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{'one core' if threads == 1 else f'{threads} cores'} of {_processor()}"


def _processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Peak:
    """The most floating-point operations a second that a model could hope for."""

    flops: float
    how: str
    """Measured with what, or given."""


def measure_peak(device: str) -> Peak:
    """The fastest of a few products of large matrices, in bf16 on a GPU and in fp32 on a CPU."""
    size, dtype = (8192, torch.bfloat16) if on_gpu(device) else (1536, torch.float32)
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        wait_for(device)
        start = time.perf_counter()
        left @ right
        wait_for(device)
        best = min(best, time.perf_counter() - start)
    return Peak(2 * size**3 / best, f"measured: {size} x {size} matrices in {str(dtype).removeprefix('torch.')}")


MEMORY_ON_GPU = "allocated on the GPU at most while it ran"
MEMORY_ON_CPU = "resident size of the whole process at most, so far"


def forget_memory(device: str) -> None:
    """Begin to watch the memory of what follows.  On a CPU the system's mark cannot be set back."""
    if on_gpu(device):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def most_memory(device: str) -> int:
    """Bytes, as MEMORY_ON_GPU and MEMORY_ON_CPU say."""
    if on_gpu(device):
        return torch.cuda.max_memory_allocated(device)
    import resource  # which not every system has

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
