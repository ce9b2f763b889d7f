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


def run_interpreted(script: Path) -> dict:
    """What a script prints as JSON, in a process of its own where Triton interprets kernels on the CPU: it must know
    when a kernel is defined, and shape checks would hide its source."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
