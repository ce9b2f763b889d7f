"""A run that is killed at any moment, also while it saves, ends as the run that was not."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longreach.api import (
    Coupled,
    EvalConfig,
    Lengths,
    OptimizerConfig,
    ParityScratchpad,
    RunConfig,
    Span,
    TrainConfig,
    TransformerConfig,
)
from longreach.config import dump_yaml, to_plain
from longreach.runs import RunFolder, execute_together, gather_info
from longreach.train import list_checkpoints

SCRIPT = Path(__file__).parents[1] / "crashing.py"


def config(steps):
    return RunConfig(
        task=ParityScratchpad(),
        ids=Coupled(max_id=60),
        model=TransformerConfig(layers=1, width=16, heads=2),
        train=TrainConfig(
            lengths=Span(1, 6),
            steps=steps,
            batch_size=4,
            log_every=3,
            save_every=2,
            validate_every=25,
            optimizer=OptimizerConfig(warmup=4),
        ),
        evaluate=EvalConfig(lengths=Lengths((3, 6)), samples=20, free_samples=8),
    )


def end_of(folder):
    """All that a run leaves behind but for times."""
    newest = list_checkpoints(folder.checkpoints)[-1]
    metrics = [{k: v for k, v in line.items() if k != "samples_per_second"} for line in folder.metrics()]
    records = {path.name: path.read_text() for path in folder.checkpoints.glob("*.json")}
    return folder.scores(), metrics, hashlib.sha256(newest.path.read_bytes()).hexdigest(), records


def crash(out, path, kills, seeds):
    command = [sys.executable, str(SCRIPT), str(out), str(path), str(kills), *map(str, seeds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return [RunFolder(out / f"seed-{seed}") for seed in seeds]


def compare(tmp_path, steps, kills, seeds):
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(to_plain(config(steps))))
    whole = [RunFolder(tmp_path / "whole" / f"seed-{seed}") for seed in seeds]
    execute_together(
        [config(steps)] * len(seeds), whole, [gather_info("crash", "", "", seed, "cpu") for seed in seeds], "cpu"
    )
    killed = crash(tmp_path / "killed", path, kills, seeds)
    for one, other in zip(whole, killed, strict=True):
        assert end_of(one) == end_of(other)
        assert not list(other.checkpoints.glob(".*"))  # what a killed save leaves behind is cleared away


def test_a_stack_that_is_killed_ends_as_if_it_had_not_been(tmp_path):
    compare(tmp_path, steps=150, kills=3, seeds=[0, 1])


@pytest.mark.crash
@pytest.mark.parametrize(("seeds", "steps"), [([0], 4000), ([0, 1, 2], 1500)], ids=["alone", "stack"])
def test_twenty_kills_change_nothing(tmp_path, seeds, steps):
    compare(tmp_path, steps=steps, kills=20, seeds=seeds)
