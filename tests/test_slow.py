"""What takes minutes: the claims of the demo, compiled training, whole runs twice."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from helpers import TINY, execute_in
from synthetic_runs import METRICS, make_runs

from longreach.api import (
    Coupled,
    EvalConfig,
    ExecutionConfig,
    Lengths,
    OptimizerConfig,
    ParityScratchpad,
    RunConfig,
    Span,
    TrainConfig,
)
from longreach.runs import RunFolder, load_recipe

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


def _run(*arguments: str) -> dict:
    options = ["--device", "cpu", "--threads", "1", "--json"]
    command = [sys.executable, "-m", "longreach.cli.main", "run", *arguments, *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_demo_shows_what_it_claims_and_repeats_exactly(tmp_path):
    """`longreach run recipes/demo.yaml` twice with one seed: identical scores, and the promised contrast."""
    recipe = str(ROOT / "recipes" / "demo.yaml")
    first = _run(recipe, "--out", str(tmp_path / "a"))
    second = _run(recipe, "--out", str(tmp_path / "b"))
    assert first["results"] == second["results"]
    for variant in load_recipe("demo").variants:
        one, other = (RunFolder(tmp_path / name / variant / "seed-0") for name in ("a", "b"))
        assert one.scores() == other.scores()
    rates = {row["variant"]: {int(n): rate for n, rate in row["rates"].items()} for row in first["results"]}
    assert {row["metric"] for row in first["results"]} == {"token_em_free"}
    assert rates["counting"][8] > 0.9  # the plain model did learn its training lengths
    assert rates["counting"][12] < 0.1
    assert rates["published"][8] > 0.99
    assert rates["published"][32] < 0.1
    assert min(rate for length, rate in rates["aligned"].items() if length <= 64) > 0.99  # eight times


@pytest.mark.parametrize("seed", [1, 2])
def test_the_demo_does_not_hang_on_its_seed(tmp_path, seed):
    found = _run(
        "demo", "--out", str(tmp_path), "--only", "aligned", "--first_seed", str(seed), "--train.steps", "1200"
    )
    assert found["results"][0]["reach"]["0.9"][0] >= 64


def test_compiled_training_is_eager_training(tmp_path):
    config = RunConfig(
        task=ParityScratchpad(),
        ids=Coupled(max_id=60),
        model=TINY,
        train=TrainConfig(lengths=Span(1, 6), steps=20, batch_size=16, optimizer=OptimizerConfig(warmup=4, lr=1e-3)),
        evaluate=EvalConfig(lengths=Lengths((4,)), samples=8, free_samples=8),
        execution=ExecutionConfig(log_every=2),
    )
    # in a process of its own: the shape checks of the tests do not compile
    script = (
        "import sys; from pathlib import Path; from longreach.config import build, read_yaml\n"
        "from longreach.runs import RunConfig, RunFolder, execute, gather_info\n"
        "config = build(RunConfig, read_yaml(Path(sys.argv[1])))\n"
        "execute(config, RunFolder(Path(sys.argv[2])), gather_info('t', '', '', 0, 'cpu'), 'cpu')\n"
    )
    from longreach.config import dump_yaml, to_plain

    losses = []
    for compiled in (False, True):
        path = tmp_path / f"{compiled}.yaml"
        path.write_text(dump_yaml(to_plain(replace(config, execution=replace(config.execution, compile=compiled)))))
        out = tmp_path / f"run-{compiled}"
        done = subprocess.run([sys.executable, "-c", script, str(path), str(out)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        losses.append([line["loss"] for line in RunFolder(out).metrics() if "loss" in line])
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("moment", range(5))
def test_stopping_at_many_moments(tmp_path, moment):
    """More of the resume test than the quick suite has room for: stops at several steps, one after the other."""
    from longreach.runs import Observer
    from longreach.training import list_checkpoints

    train = TrainConfig(lengths=Span(1, 6), steps=60, batch_size=8, validate_every=20)
    tests = EvalConfig(lengths=Lengths((3, 6)), samples=20, free_samples=8)
    config = RunConfig(task=ParityScratchpad(), ids=Coupled(max_id=60), model=TINY, train=train, evaluate=tests)
    config = replace(config, execution=ExecutionConfig(save_every=7))
    whole = execute_in(tmp_path / "whole", config)
    parts = RunFolder(tmp_path / "parts")
    while not parts.finished:
        calls = iter(range(10_000))
        stop = Observer(should_stop=lambda calls=calls: next(calls) == 9 + 3 * moment)
        execute_in(tmp_path / "parts", config, resume=True, observer=stop)
    newest = [list_checkpoints(folder.checkpoints)[-1].path.read_bytes() for folder in (whole, parts)]
    assert newest[0] == newest[1]
    assert whole.scores() == parts.scores()


def test_ten_thousand_runs_become_one_table(tmp_path):
    """`pytest -m slow -s -k ten_thousand` prints the seconds of the whole command, without an index and with one."""
    lengths = tuple(range(10, 210, 10))
    make_runs(tmp_path / "runs", 10_000, lengths=lengths)
    command = [sys.executable, "-m", "longreach.cli.main", "results", str(tmp_path / "runs"), "--limit", "0"]
    pivot = [*command, "--pivot", "length", "--rows", "model.width"]
    for name, arguments, lines in [("cold", command, 10_001), ("warm", command, 10_001), ("pivot", pivot, 5)]:
        started = time.perf_counter()
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        print(f"{name}: {time.perf_counter() - started:.1f} s")
        assert len(done.stdout.splitlines()) == lines
    table = tmp_path / "all.parquet"
    subprocess.run([*command[:-2], "--out", str(table)], check=True, capture_output=True)
    assert pq.read_metadata(table).num_rows == 10_000 * len(lengths) * len(METRICS)
