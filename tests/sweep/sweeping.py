"""Shorthands for tests of sweeps: a sweep that takes a few seconds, and ways to disturb it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from longreach.config import build
from longreach.runs import RunConfig, RunFolder, execute, gather_info
from longreach.sweeps import make_plan
from longreach.training import list_checkpoints

TINY = {
    "title": "tiny",
    "task": "parity_scratchpad",
    "model": {"layers": 1, "width": 16, "heads": 2},
    "train": {"lengths": "1..4", "steps": 6, "batch_size": 4},
    "execution": {"save_every": 3, "log_every": 2},
    "evaluate": {"lengths": [2, 4], "samples": 8, "free_samples": 4},
}
LONG = {
    **TINY,
    "train": {**TINY["train"], "steps": 800},
    "execution": {"save_every": 20, "log_every": 20},
    "seeds": 2,
}
"""Long enough to be disturbed in the middle."""
ENDLESS = {**LONG, "train": {**LONG["train"], "steps": 100_000}}
"""Long enough never to end before it is stopped."""


def write(path: Path, content: dict) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def start(file: Path, out: Path, *flags: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "longreach.cli.main", "sweep", "run", str(file), "--out", str(out)]
    return subprocess.Popen(
        [*command, "--device", "cpu", *flags], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_until(holds, seconds: float = 240.0):
    """Poll; the limit is for a hang, not for a slow machine."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)
    return found


def step_of(folder: Path) -> int:
    """Of the newest checkpoint."""
    return max((checkpoint.step for checkpoint in list_checkpoints(folder / "checkpoints")), default=0)


def wait_for_a_checkpoint(folder: Path) -> int:
    return wait_until(lambda: step_of(folder))


def process_of(folder: Path) -> int:
    """The job that works on a folder now, as its log says."""
    return int(re.findall(r"^process (\d+) on", (folder / "log.txt").read_text(), flags=re.M)[-1])


def parent_of(process: int) -> int:
    return int(re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), flags=re.M)[1])


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def finish(driver: subprocess.Popen, code: int = 0) -> str:
    try:
        _, error = driver.communicate(timeout=240)
    finally:
        driver.kill()
    assert driver.returncode == code, error
    return error


def check_whole(file: Path, out: Path, undisturbed: Path) -> None:
    """Every run is finished once, and as if nothing had happened: same scores, every line of metrics once."""
    for run in make_plan(file).runs:
        folder, whole = run.folder(out), RunFolder(undisturbed / run.name.replace("/", "-"))
        if not whole.finished:
            config = build(RunConfig, yaml.safe_load((folder.path / "config.yaml").read_text()))
            execute(config, whole, gather_info("x", "", "", run.seed, "cpu"), "cpu")
        assert folder.scores() == whole.scores()
        assert folder.info().seed == run.seed
        lines = [[line["step"] for line in one.metrics() if "loss" in line] for one in (folder, whole)]
        assert lines[0] == lines[1]
