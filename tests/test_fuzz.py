"""Random settings and damaged files: no traceback, no crash, no hang, no silent nonsense."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


@pytest.mark.parametrize(("mode", "seed", "count"), [("settings", 0, 1000), ("settings", 1, 1000), ("files", 0, 500)])
def test_nothing_random_ends_in_a_traceback(tmp_path, mode, seed, count):
    """In a process of its own, which may crash, and in which no annotation is checked, as for a user."""
    command = [sys.executable, str(HERE / "fuzzing.py"), mode, str(seed), str(count), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    cases = {line["case"]: line for line in lines if "case" in line}
    failed = [{**cases[line["failed"]], "wrong": line["wrong"]} for line in lines if "failed" in line]
    assert not failed, json.dumps(failed, indent=1)
    assert lines[-1] == {"done": True}, f"{lines[-1]}\n{done.stderr[-3000:]}"
    assert len(cases) == count


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
