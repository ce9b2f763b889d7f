"""One seed trained by two processes is the run that one process would have made."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import TINY, execute_in
from safetensors.torch import load_file

from longreach.api import (
    Coupled,
    EvalConfig,
    ExecutionConfig,
    IdLoss,
    LearnedConfig,
    Lengths,
    LlamaConfig,
    OptimizerConfig,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RecurrentConfig,
    RunConfig,
    Span,
    T5Config,
    TableConfig,
    TrainConfig,
)
from longreach.cli.main import main
from longreach.config import dump_yaml, to_plain
from longreach.engine.parallel import check_parallel
from longreach.errors import BadInput
from longreach.runs import Observer, RunFolder, load_model, new_model
from longreach.training import list_checkpoints

SCRIPT = Path(__file__).parents[1] / "together.py"
SMALL = replace(TINY, width=16)
PLAIN = RunConfig(
    task=ParityScratchpad(),
    ids=Coupled(max_id=60),
    model=SMALL,
    train=TrainConfig(
        lengths=Span(1, 6),
        steps=8,
        batch_size=8,
        validate_every=4,
        # gradients are clipped; a large eps keeps Adam from blowing up the rounding of gradients near 0
        optimizer=OptimizerConfig(warmup=3, lr=3e-3, clip=0.5, eps=1e-4),
    ),
    evaluate=EvalConfig(lengths=Lengths((3, 6)), samples=20, free_samples=8),
    execution=ExecutionConfig(log_every=1, save_every=3),
)
RICH = replace(
    PLAIN,
    ids=Predicted(max_id=60),
    model=replace(
        SMALL,
        encoding=LearnedConfig(),
        position_head=TableConfig(tied=True),
        tie_embeddings=True,
        loops=2,
    ),
    train=replace(PLAIN.train, objectives=[IdLoss(feed_predicted=0.5, feed_from=0.1)]),
    execution=replace(PLAIN.execution, accumulate=2, recompute=True),
)
HEADS = replace(  # single numbers among the weights, which cannot be split
    RICH,
    model=replace(SMALL, encoding=T5Config(), position_head=PointerConfig(), dependency_head=True, copy_head=True),
    # with a share of .5, two IDs are equally likely at some step, and rounding decides which is fed
    train=replace(RICH.train, objectives=[IdLoss(feed_predicted=0.3, feed_from=0.1)]),
)
LLAMA = replace(PLAIN, model=LlamaConfig(layers=2, width=16, heads=4, kv_heads=2))
SPOILT = replace(PLAIN, train=replace(PLAIN.train, optimizer=OptimizerConfig(lr=1e30, warmup=4, clip=0.0)))


def torchrun(*arguments, timeout=90):
    """Two processes; a deadlock fails instead of lasting."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    # where one process is gone, torchrun ends the other: not before that had time to say so
    command = [*run, "--monitor-interval", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    running = subprocess.Popen([*map(str, command)], stdout=pipe, stderr=pipe, text=True, env=environment)
    try:
        out, err = running.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        running.terminate()  # torchrun then ends the processes that it started
        pytest.fail(f"deadlock: {running.communicate()}")
    return running.returncode, out, err


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """All runs of this file, since a start takes seconds: their folder."""
    place = tmp_path_factory.mktemp("together")
    for name, config in (("plain", PLAIN), ("rich", RICH), ("heads", HEADS), ("llama", LLAMA), ("spoilt", SPOILT)):
        (place / f"{name}.yaml").write_text(dump_yaml(to_plain(config)))
    asked = iter(range(1, 100))
    execute_in(place / "from-one", PLAIN, observer=Observer(should_stop=lambda: next(asked) == 4))

    def plan(name, out, kind, resume=False, **more):
        return {
            "config": f"{place}/{name}.yaml",
            "out": f"{place}/{out}",
            "seed": 0,
            "kind": kind,
            "resume": resume,
        } | more

    plans = [
        plan("plain", "plain-ddp", "ddp"),
        plan("plain", "plain-fsdp", "fsdp"),
        plan("rich", "rich-ddp", "ddp"),
        plan("rich", "rich-fsdp", "fsdp"),
        plan("heads", "heads-ddp", "ddp"),
        plan("llama", "llama-fsdp", "fsdp"),
        plan("plain", "stopped-ddp", "ddp", stop=[1, 4]),
        plan("plain", "stopped-ddp", "fsdp", resume=True, stop=[0, 2]),
        plan("plain", "again", "fsdp", stop=[1, 5]),
        plan("plain", "again", "fsdp", resume=True),
        plan("plain", "from-one", "fsdp", resume=True),
        plan("plain", "from-one", "ddp", resume=True),  # is finished already
        plan("spoilt", "spoilt", "fsdp"),
        plan("plain", "lost", "ddp", die=[1, 4]),
    ]
    (place / "plan.json").write_text(json.dumps(plans))
    code, _, err = torchrun(SCRIPT, place / "plan.json")
    assert code == 1, err[-3000:]  # the one that died
    return place


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    place = tmp_path_factory.mktemp("alone")
    every = {"plain": PLAIN, "rich": RICH, "heads": HEADS, "llama": LLAMA}
    return {name: execute_in(place / name, config) for name, config in every.items()}


def newest(folder):
    return list_checkpoints(folder.checkpoints)[-1]


def values(folder):
    names = ("loss", "id_loss", "dependency_loss", "grad_norm", "lr", "in_distribution_em")
    return [line.get(name, 0.0) for line in folder.metrics() for name in names]


def same(one, other):
    """Two runs in which sums were added up in another order."""
    assert values(one) == pytest.approx(values(other), rel=1e-3, abs=1e-5)
    mine, theirs = load_file(newest(one).path), load_file(newest(other).path)
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-2, atol=1e-4)
    assert _metrics(one) == _metrics(other)


def _metrics(folder):
    """Return what was scored, without errors by place and kind: those exist only where rounding let some happen."""
    return [(s.length, s.metric) for s in folder.scores() if not s.metric.startswith(("first_error", "error_id"))]


@pytest.mark.parametrize(
    ("name", "kind"), [("plain", "ddp"), ("plain", "fsdp"), ("rich", "ddp"), ("rich", "fsdp"), ("heads", "ddp")]
)
def test_two_ranks_train_as_one_process_does(together, alone, name, kind):
    folder = RunFolder(together / f"{name}-{kind}")
    same(folder, alone[name])
    assert {path.name for path in folder.path.iterdir()} == {path.name for path in alone[name].path.iterdir()}
    assert folder.info().ranks == 2
    load_model(folder)


def test_a_wish_to_stop_of_any_rank_stops_all_and_one_process_goes_on(together, alone):
    """Stopped under ddp after 4 steps, then under fsdp after 2 more."""
    folder = RunFolder(together / "stopped-ddp")
    assert newest(folder).step == 6
    assert not folder.finished
    execute_in(folder.path, PLAIN, resume=True)
    same(folder, alone["plain"])
    assert [later["ranks"] for later in folder.info().resumed] == [1]


def test_two_ranks_go_on_where_one_process_stopped(together, alone):
    folder = RunFolder(together / "from-one")
    assert folder.info().ranks == 1
    assert folder.info().resumed[0]["ranks"] == 2
    same(folder, alone["plain"])


def test_stopping_and_resuming_on_as_many_ranks_is_bit_for_bit(together):
    one, other = (RunFolder(together / name) for name in ("plain-fsdp", "again"))
    assert newest(one).path.read_bytes() == newest(other).path.read_bytes()
    assert one.scores() == other.scores()
    assert values(one) == values(other)


def test_a_loss_that_is_not_finite_stops_all_ranks(together):
    reasons = [(together / f"spoilt.failed-{rank}").read_text() for rank in (0, 1)]
    assert "the last good state is" in reasons[0] or "no checkpoint had been saved" in reasons[0]
    assert all("became" in reason for reason in reasons)


def test_a_rank_that_is_gone_ends_the_run_and_what_was_saved_is_kept(together, alone):
    assert (together / "lost.failed-0").read_text() == "process 0: another one is gone, and its own line says why"
    folder = RunFolder(together / "lost")
    assert newest(folder).step == 3
    execute_in(folder.path, PLAIN, resume=True)
    same(folder, alone["plain"])


def test_the_command_line_runs_once_over_two_ranks(tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text(dump_yaml(to_plain(PLAIN)))
    flags = [
        "--train.steps",
        "3",
        "--train.validate_every",
        "2",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--json",
        "--parallel",
        "fsdp",
        "--out",
        tmp_path / "out",
    ]
    code, out, err = torchrun("-m", "longreach", "run", recipe, "--seeds", "2", *flags)
    assert code == 0, err[-3000:]
    assert json.loads(out)["results"][0]["seeds"] == [0, 1]
    assert (tmp_path / "out" / "report" / "scores.csv").exists()


@pytest.mark.parametrize(
    ("changes", "device", "complaint"),
    [
        ({"train": replace(PLAIN.train, batch_size=9)}, "cpu", "batch_size=9 does not split among 2 processes"),
        (
            {"train": replace(PLAIN.train, batch_size=6), "execution": ExecutionConfig(accumulate=2)},
            "cpu",
            "among 2 processes of 2 parts",
        ),
        ({"execution": ExecutionConfig(compile=True)}, "cpu", "execution.compile goes with one process only"),
        ({}, "cuda:0", "set execution.graph to false"),
        ({"model": RecurrentConfig(width=8)}, "cpu", "not of a recurrent model: use ddp"),
        ({"model": replace(SMALL, copy_head=True)}, "cpu", "cannot split copy_head.look_back.slope, which is a single"),
    ],
)
def test_what_several_ranks_cannot_do_is_refused(changes, device, complaint):
    config = replace(PLAIN, **changes)
    with pytest.raises(BadInput, match=complaint):
        check_parallel("fsdp", 2, device, config.train, config.execution, new_model(config, 0, "cpu"))


def test_processes_that_would_write_over_each_other_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput, match="started as one of 2 processes"):
        execute_in(tmp_path / "run", PLAIN)
    assert not (tmp_path / "run").exists()


def test_one_process_has_nothing_to_share(capsys):
    assert main(["run", "demo", "--parallel", "fsdp"]) == 2
    assert "--parallel is for several processes: torchrun" in capsys.readouterr().err
