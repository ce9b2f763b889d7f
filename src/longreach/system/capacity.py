"""Memory of the machine and its GPUs, and the refusal of work that cannot fit into it."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from longreach.errors import BadInput

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of a container."""


def total_memory(device: str) -> int:
    """Return the bytes of a GPU's memory, or of the machine's, where a container may set a lower limit."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _LIMITS:
        try:
            text = Path(file).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            sizes.append(int(text))
    return min(sizes)


def free_memory(device: str) -> int:
    """Return the bytes that are free now; on a machine that does not say, all of them."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    total = total_memory(device)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return total
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min([total, *found])


def check_memory(needed: int, device: str, what: str, smaller: str, warn: Callable[[str], None]) -> None:
    """Raise BadInput if `what` needs more bytes than the device has; warn if more than are free.

    `smaller` names the setting that needs less.
    """
    total = total_memory(device)
    place = "this GPU" if torch.device(device).type == "cuda" else "this machine"
    estimate = f"{what} needs about {size(needed)} of memory (an estimate)"
    if needed > total:
        raise BadInput(f"{estimate}, and {place} has {size(total)}: {smaller}")
    free = free_memory(device)
    if needed > free:
        warn(f"warning: {estimate}, and {size(free)} are free on {place}: {smaller}")


def size(number: int) -> str:
    """Format bytes: 1.5 GB, 12 MB."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6)):
        if number >= 10**power:
            return f"{number / 10**power:,.1f} {unit}"
    return f"{number} bytes"
