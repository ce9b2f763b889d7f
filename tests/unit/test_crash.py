"""A run that is killed at any moment, also while it saves, ends as the run that was not."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longreach.api import (
    Coupled,
    EvalConfig,
    ExecutionConfig,
    Lengths,
    OptimizerConfig,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RunConfig,
    Span,
    TrainConfig,
    TransformerConfig,
)
from longreach.config import dump_yaml, to_plain
from longreach.runs import RunFolder
from longreach.training import list_checkpoints

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
            validate_every=25,
            optimizer=OptimizerConfig(warmup=4),
        ),
        evaluate=EvalConfig(lengths=Lengths((3, 6)), samples=20, free_samples=8),
        execution=ExecutionConfig(log_every=3, save_every=2),
    )


def end_of(folder):
    """All that a run leaves behind but for times."""
    newest = list_checkpoints(folder.checkpoints)[-1]
    metrics = [{k: v for k, v in line.items() if k != "samples_per_second"} for line in folder.metrics()]
    records = {path.name: path.read_text() for path in folder.checkpoints.glob("*.json")}
    return folder.scores(), metrics, hashlib.sha256(newest.path.read_bytes()).hexdigest(), records


def crash(out, path, kills, device, seeds):
    command = [sys.executable, str(SCRIPT), str(out), str(path), str(kills), device, *map(str, seeds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return [RunFolder(out / f"seed-{seed}") for seed in seeds]


def compare(tmp_path, config, kills, seeds, device="cpu"):
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(to_plain(config)))
    whole = crash(tmp_path / "whole", path, 0, device, seeds)
    killed = crash(tmp_path / "killed", path, kills, device, seeds)
    for one, other in zip(whole, killed, strict=True):
        assert end_of(one) == end_of(other)
        assert not list(other.checkpoints.glob(".*"))  # what a killed save leaves behind is cleared away


def test_a_stack_that_is_killed_ends_as_if_it_had_not_been(tmp_path):
    compare(tmp_path, config(steps=150), kills=3, seeds=[0, 1])


@pytest.mark.crash
@pytest.mark.parametrize(("seeds", "steps"), [([0], 4000), ([0, 1, 2], 1500)], ids=["alone", "stack"])
def test_twenty_kills_change_nothing(tmp_path, seeds, steps):
    compare(tmp_path, config(steps), kills=20, seeds=seeds)


@pytest.mark.crash
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("seeds", "train", "execution", "ids"),
    [
        ([0, 1, 2], {}, {}, Coupled(max_id=60)),
        ([0, 1, 2], {"precision": "bf16"}, {}, Predicted(max_id=60)),
        ([0], {}, {"graph": False}, Coupled(max_id=60)),
    ],
    ids=["stack", "stack that predicts IDs in bf16", "alone, not recorded"],
)
def test_twenty_kills_change_nothing_on_a_gpu(tmp_path, seeds, train, execution, ids):
    plain = config(6000)
    head = PointerConfig() if isinstance(ids, Predicted) else None
    settings = replace(
        plain,
        ids=ids,
        model=replace(plain.model, position_head=head),
        train=replace(plain.train, **train),
        execution=replace(plain.execution, deterministic=True, save_every=10, **execution),
    )
    compare(tmp_path, settings, kills=20, seeds=seeds, device="cuda")
