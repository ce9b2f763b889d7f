"""What tests without a GPU do about code for one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch


class OnGpu(torch.Tensor):
    """Says that it lies on a GPU."""

    is_cuda = True


def run_apart(script: Path, interpreted: bool = False) -> dict:
    """What a script prints as JSON, in a process of its own: shape checks would hide the source of kernels.  Triton
    interprets them on the CPU if wanted, which it must know when a kernel is defined."""
    environment = {**os.environ, **({"TRITON_INTERPRET": "1"} if interpreted else {})}
    environment.pop("ATEN_CPU_CAPABILITY", None)  # with `default`, torch.compile writes C++ that does not compile
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
