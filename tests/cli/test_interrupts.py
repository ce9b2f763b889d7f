"""Ctrl-C and SIGTERM, also inside one long torch operation, where Python runs no signal handler."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from longreach.cli.main import main
from longreach.training import list_checkpoints

SLOW = '''
import os
from dataclasses import dataclass
from pathlib import Path
import torch
from longreach.api import ParityScratchpad

@dataclass(frozen=True, kw_only=True)
class Slow(ParityScratchpad):
    """Parity; once there is a file `slow`, a sample takes minutes in one operation."""

    def sample(self, *arguments):
        if Path("slow").exists():
            matrix = torch.randn(5000, 5000)
            Path(f"inside-{os.getpid()}").touch()
            torch.linalg.eigvals(matrix)
        return super().sample(*arguments)
'''
RECIPE = {
    "title": "slow",
    "task": "slow.Slow",
    "model": {"layers": 1, "width": 16, "heads": 2},
    "train": {"lengths": "1..4", "steps": 100_000, "batch_size": 4},
    "execution": {"save_every": 20},
    "evaluate": {"lengths": [4], "samples": 8, "free_samples": 4},
}
IN_TIME = 15.0
"""Seconds; 5 are promised, on a machine that does nothing else."""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    return tmp_path


def start(place: Path, *arguments: str, seconds: float = 4) -> subprocess.Popen:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, "LONGREACH_STOP_SECONDS": f"{seconds:g}"}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "longreach", *arguments]
    return subprocess.Popen(command, cwd=place, env=environment, stdout=pipe, stderr=pipe, text=True)


def wait_until_inside(place: Path, running: subprocess.Popen) -> None:
    """Until the process is in the middle of the slow operation."""
    (place / "slow").touch()
    wait_for(place / f"inside-{running.pid}", running)
    time.sleep(0.3)


def wait_for(path: Path, running: subprocess.Popen) -> None:
    while not path.exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)


def end(running: subprocess.Popen) -> tuple[float, str]:
    """Seconds until the process has ended, and what it said."""
    begun = time.monotonic()
    try:
        _, error = running.communicate(timeout=IN_TIME)
    finally:
        running.kill()
    return time.monotonic() - begun, error


def test_both_signals_stop_inside_one_operation_and_a_second_at_once(place):
    running = [start(place, "show", "slow.Slow", "--length", "3") for _ in range(2)]
    for process in running:
        wait_until_inside(place, process)
    once, twice = running
    once.send_signal(signal.SIGTERM)
    twice.send_signal(signal.SIGINT)
    time.sleep(0.5)
    twice.send_signal(signal.SIGINT)
    seconds, error = end(twice)
    assert seconds < 3.0
    assert "stopped at once" in error
    assert twice.returncode == 130
    _, error = end(once)
    assert "stopping, in 4 s at the latest" in error
    assert "stopped inside a computation that takes longer than 4 s" in error
    assert once.returncode == 143


def test_a_run_inside_a_long_step_says_what_is_lost_and_a_test_inside_a_batch_stops(place):
    running = start(place, "run", "recipe.yaml", "--out", "out", "--device", "cpu", seconds=2)
    checkpoints = place / "out" / "seed-0" / "checkpoints"
    wait_for(checkpoints, running)
    while not list_checkpoints(checkpoints):
        time.sleep(0.05)
    wait_until_inside(place, running)
    running.send_signal(signal.SIGINT)
    _, error = end(running)
    assert running.returncode == 130
    saved = list_checkpoints(checkpoints)[-1].step
    assert "stopping after this step, in 2 s at the latest (once more to stop at once)" in error
    lost = re.search(rf"the checkpoint at step {saved} is kept, (\d+) finished steps are lost", error)
    assert lost, error
    assert int(lost[1]) < RECIPE["execution"]["save_every"]
    assert "To go on: longreach run recipe.yaml --out out --device cpu --resume" in error
    testing = start(place, "eval", "out/seed-0", "--device", "cpu", seconds=1)
    wait_until_inside(place, testing)
    testing.send_signal(signal.SIGTERM)
    _, error = end(testing)
    assert testing.returncode == 143
    assert "stopped inside a computation that takes longer than 1 s" in error


@pytest.mark.slow
def test_a_sweep_whose_runs_are_inside_a_step_ends_with_all_of_its_processes(place):
    (place / "sweep.yaml").write_text(yaml.safe_dump(RECIPE))
    driver = start(place, "sweep", "run", "sweep.yaml", "--out", "out", "--device", "cpu", "--workers", "1", seconds=2)
    log = place / "out" / "sweep" / "seed-0" / "log.txt"
    wait_for(log, driver)
    while not (job := re.search(r"^process (\d+) on", log.read_text(), flags=re.M)):
        time.sleep(0.05)
    (place / "slow").touch()
    wait_for(place / f"inside-{job[1]}", driver)
    driver.send_signal(signal.SIGINT)
    _, error = end(driver)
    assert driver.returncode == 130
    assert "seed-0: stopped inside a computation that takes longer than 1.5 s" in error
    assert "To go on:  longreach sweep run sweep.yaml" in error
    assert not Path(f"/proc/{job[1]}").exists()


def test_a_stop_within_seconds_that_are_no_number_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("LONGREACH_STOP_SECONDS", "soon")
    assert main(["list"]) == 2
    assert "LONGREACH_STOP_SECONDS must be a number of seconds above 0, got 'soon'" in capsys.readouterr().err
