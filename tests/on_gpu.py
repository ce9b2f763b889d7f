"""Checks that run in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_apart(script: Path, *arguments: str, interpreted: bool = False) -> Any:
    """Return the JSON that a script prints.

    Shape checks would hide the source of kernels, so the script runs in another process.  If `interpreted`, Triton
    interprets kernels on the CPU, which it must know when a kernel is defined.
    """
    environment = {**os.environ, **({"TRITON_INTERPRET": "1"} if interpreted else {})}
    helpers = str(Path(__file__).parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [helpers, environment.get("PYTHONPATH")]))
    environment.pop("ATEN_CPU_CAPABILITY", None)  # with `default`, torch.compile writes C++ that does not compile
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
