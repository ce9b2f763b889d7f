"""Where a run can be watched, and what its log says afterwards."""

import importlib.util
import json
import sys
import time
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest
from helpers import TINY, execute_in
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

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
from longreach.cli.main import main
from longreach.errors import BadInput, RunFailed
from longreach.runs import Observer, RunFolder, check_trackers, execute_together, gather_info

CONFIG = RunConfig(
    task=ParityScratchpad(),
    ids=Coupled(max_id=60),
    model=TINY,
    train=TrainConfig(lengths=Span(1, 6), steps=12, batch_size=4, validate_every=6),
    evaluate=EvalConfig(lengths=Lengths((3, 6)), samples=8, free_samples=4),
    execution=ExecutionConfig(log_every=4, save_every=5),
)


class FakeRun:
    """The part of a W&B or trackio run that is used, as their documentation has it."""

    def __init__(self, **options):
        self.options, self.logged, self.ended = options, [], None

    def log(self, metrics, step=None):
        assert self.ended is None
        self.logged.append((step, metrics))

    def finish(self, exit_code=0):
        self.ended = exit_code

    @property
    def steps(self):
        return sorted({step for step, _ in self.logged})


@pytest.fixture
def fakes(monkeypatch):
    """Modules `wandb` and `trackio`, and the runs that were begun with them.  trackio prints, and knows one run."""
    begun = []

    def begin(**options):
        begun.append(FakeRun(**options))
        return begun[-1]

    def begin_loudly(**options):
        print("* Trackio project initialized")
        return begin(**options)

    wandb = _module("wandb", init=begin, Settings=lambda **options: SimpleNamespace(**options), Error=RuntimeError)
    trackio = _module("trackio", init=begin_loudly, finish=lambda: begun[-1].finish())
    for module in (wandb, trackio):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return begun


def _module(name, **content):
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__dict__.update(content)
    return module


def _stop_after(steps):
    calls = iter(range(1000))
    return Observer(should_stop=lambda: next(calls) == steps - 1)


def _scalars(folder, tag):
    board = EventAccumulator(str(folder.path / "tensorboard"))
    board.Reload()
    return {event.step: event.value for event in board.Scalars(tag)}


def _events(folder):
    return [json.loads(line) for line in (folder.path / "log.jsonl").read_text().splitlines()]


def test_tensorboard_has_metrics_and_scores_also_after_a_resume(tmp_path):
    execute_in(tmp_path / "run", CONFIG, observer=_stop_after(9))
    folder = execute_in(tmp_path / "run", CONFIG, resume=True)
    logged = {line["step"]: line["loss"] for line in folder.metrics() if "loss" in line}
    assert _scalars(folder, "loss") == pytest.approx(logged)
    rates = {score.length: score.rate for score in folder.scores() if score.metric == "token_em_free"}
    for length, rate in rates.items():
        assert _scalars(folder, f"test/token_em_free/{length}") == {12: rate}


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_gets_metrics_and_scores_and_is_resumed_as_the_same(tmp_path, fakes, name, capsys):
    execute_in(tmp_path / "run", CONFIG, observer=_stop_after(9), track=[name])
    folder = execute_in(tmp_path / "run", CONFIG, resume=True, track=[name])
    first, second = fakes
    assert (first.steps, second.steps) == ([4, 6, 8], [12])
    assert first.options == second.options
    assert first.options["resume"] == "allow"
    assert first.options["config"]["train"]["steps"] == 12
    assert [run.ended for run in fakes] == [0, 0]
    sent = {key: value for _, values in second.logged for key, value in values.items()}
    expected = {f"test/{s.metric}/{s.length}": s.rate for s in folder.scores() if "_em_" in s.metric}
    assert len(expected) == 4
    assert expected.items() <= sent.items()
    assert {"loss", "lr", "in_distribution_em"} <= sent.keys()
    assert capsys.readouterr().out == ""  # stdout is for results


def test_two_folders_are_two_runs_elsewhere(tmp_path, fakes):
    for name in ("a", "b"):
        execute_in(tmp_path / name, CONFIG, track=["wandb", "trackio"])
    ids = [run.options["id"] for run in fakes if "id" in run.options]
    names = [run.options["name"] for run in fakes if "id" not in run.options]
    assert len(set(ids)) == len(set(names)) == 2


def test_a_run_that_fails_is_shown_as_failed(tmp_path, fakes):
    spoilt = replace(CONFIG.train, optimizer=OptimizerConfig(lr=1e20, warmup=1, clip=0.0))
    with pytest.raises(RunFailed, match="became"):
        execute_in(tmp_path / "run", replace(CONFIG, train=spoilt), track=["wandb"])
    assert fakes[0].ended == 1
    gave_up = _events(RunFolder(tmp_path / "run"))[-2]
    assert (gave_up["event"], gave_up["level"]) == ("gave up", "error")
    assert "became" in gave_up["message"]


def test_seeds_of_a_stack_are_watched_together(tmp_path, fakes):
    folders = [RunFolder(tmp_path / f"seed-{seed}") for seed in range(2)]
    infos = [gather_info("test", "", "", seed, "cpu", ["seed-0", "seed-1"]) for seed in range(2)]
    execute_together([CONFIG] * 2, folders, infos, "cpu", track=["wandb"])
    assert [run.options["name"] for run in fakes] == ["test/seed-0", "test/seed-1"]
    assert all(run.steps == [4, 6, 8, 12] for run in fakes)
    assert all(run.options["reinit"] == "create_new" for run in fakes)
    with pytest.raises(BadInput, match="trackio follows one run at a time"):
        execute_together([CONFIG] * 2, folders, infos, "cpu", track=["trackio"])


def test_a_login_that_is_missing_is_one_line(tmp_path, fakes, monkeypatch):
    def refuse(**options):
        raise RuntimeError("api_key not configured (no-tty).\nCall wandb.login")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(
        RunFailed, match=r"wandb could not start: api_key not configured \(no-tty\).; see `wandb login`"
    ):
        execute_in(tmp_path / "run", CONFIG, track=["wandb"])


def test_what_cannot_be_tracked_is_refused_before_training(tmp_path, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name))
    with pytest.raises(BadInput, match=r"wandb is not installed: pip install 'longreach\[wandb\]'"):
        check_trackers(["wandb"])
    assert main(["run", "demo", "--track", "wandbb", "--out", str(tmp_path / "out")]) == 2
    assert "unknown tracker 'wandbb'; did you mean wandb?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_wandb_itself_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    execute_in(tmp_path / "run", CONFIG, observer=_stop_after(9), track=["wandb"])
    folder = execute_in(tmp_path / "run", CONFIG, resume=True, track=["wandb"])
    parts = sorted(folder.path.glob("wandb/offline-run-*/run-*.wandb"))
    identity = json.loads((folder.path / "tracking.json").read_text())["id"]
    assert {part.name for part in parts} == {f"run-{identity}.wandb"}
    # another process writes these files, and may still be at it
    deadline = time.monotonic() + 30
    while not (sent := any(b"test/token_em_free/6" in part.read_bytes() for part in parts)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert sent


def test_the_log_tells_what_happened(tmp_path):
    said = []
    stop = _stop_after(9)
    execute_in(tmp_path / "run", CONFIG, observer=stop)
    folder = execute_in(tmp_path / "run", CONFIG, resume=True, observer=Observer(say=said.append))
    events = _events(folder)
    assert [(event["event"], event.get("step")) for event in events] == [
        ("started", None),
        ("plan", None),
        ("checkpoint", 5),
        ("checkpoint", 9),
        ("interrupted", None),
        ("started", None),
        ("resumed", 9),
        ("plan", None),
        ("checkpoint", 10),
        ("checkpoint", 12),
        ("testing", None),
        ("finished", None),
    ]
    assert all({"time", "level", "event", "seconds"} <= event.keys() for event in events)
    assert events[0]["seed"] == 0
    assert said == [events[6]["message"], events[7]["message"]]
    assert said == [
        f"resuming {folder.path} at step 9",
        "plan: cpu, fp32: first layer by token, cpu rotation, cpu batches, cpu optimizer, lockstep decoding",
    ]


def test_the_log_keeps_warnings_and_what_broke_a_run(tmp_path, monkeypatch):
    folder = execute_in(tmp_path / "run", CONFIG, observer=_stop_after(9))
    newest = max((folder.path / "checkpoints").glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:100])

    def break_down(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(RunFolder, "save_results", break_down)
    with pytest.raises(OSError, match="the disk is full"):
        execute_in(tmp_path / "run", CONFIG, resume=True)
    events = {event["event"]: event for event in _events(folder)}
    assert "is damaged" in events["warning"]["message"]
    assert events["failed"]["message"] == "OSError: the disk is full"
