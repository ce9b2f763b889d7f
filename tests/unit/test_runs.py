"""A run folder: what it holds, what it refuses, and that killing it loses nothing."""

import errno
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch
import yaml
from helpers import TINY, execute_in

from longreach.api import (
    Copy,
    Coupled,
    EvalConfig,
    ExecutionConfig,
    LearnedConfig,
    Lengths,
    OptimizerConfig,
    ParityScratchpad,
    Randomized,
    RandomStart,
    RunConfig,
    Sequential,
    Span,
    SparseParity,
    TrainConfig,
    VariableAssignment,
    build_model,
)
from longreach.cli.main import main
from longreach.errors import BadInput, RunFailed
from longreach.runs import Observer, RunFolder, check, execute, gather_info, load_model
from longreach.training import build_optimizer, list_checkpoints, save_checkpoint

CONFIG = RunConfig(
    task=ParityScratchpad(),
    ids=Coupled(max_id=60),
    model=TINY,
    train=TrainConfig(
        lengths=Span(1, 6),
        steps=24,
        batch_size=8,
        validate_every=10,
        optimizer=OptimizerConfig(warmup=4),
    ),
    evaluate=EvalConfig(lengths=Lengths((3, 6, 12)), samples=20, free_samples=8),
    execution=ExecutionConfig(log_every=4, save_every=5, batch_tokens=100),
)


def _weights(folder: RunFolder) -> bytes:
    return list_checkpoints(folder.checkpoints)[-1].path.read_bytes()


def test_a_run_leaves_everything_behind(tmp_path):
    folder = execute_in(tmp_path / "run", CONFIG, seed=3)
    assert folder.config() == CONFIG
    info = folder.info()
    assert info.seed == 3
    assert torch.__version__.startswith(info.versions["torch"])  # which may leave out the build, +cu130
    lines = folder.metrics()
    assert [line["step"] for line in lines if "loss" in line] == [4, 8, 12, 16, 20, 24]
    assert [line["step"] for line in lines if "in_distribution_em" in line] == [10, 20, 24]
    assert [checkpoint.step for checkpoint in list_checkpoints(folder.checkpoints)][-2:] == [20, 24]
    assert list((folder.path / "tensorboard").iterdir())
    counts = {(score.length, score.metric): score.samples for score in folder.scores()}
    assert counts[12, "token_em_tf"] == 20
    assert counts[12, "token_em_free"] == 8
    assert counts[12, "token_accuracy"] == 20 * 13  # answer tokens, the stop token among them
    assert (folder.path / "scores.csv").read_text().count("\n") == 1 + len(folder.scores())
    card = folder.card()
    assert card.trained_lengths == "1..6"
    assert card.trained_tokens == "5..15"
    assert card.ids_supplied_by == "a rule, from the prompt"
    assert card.stops == "at the model's own stop token"
    assert sum(card.id_coverage) > 0
    config, model = load_model(folder)
    assert config == CONFIG
    assert not model.training


def test_batches_of_a_test_do_not_change_its_counts(tmp_path):
    one = execute_in(tmp_path / "a", CONFIG)
    other = execute_in(tmp_path / "b", replace(CONFIG, execution=replace(CONFIG.execution, batch_tokens=10_000)))
    assert one.scores() == other.scores()


def test_a_folder_that_exists_is_not_touched(tmp_path):
    folder = execute_in(tmp_path / "run", CONFIG)
    before = _weights(folder)
    with pytest.raises(BadInput, match=r"exists: add resume=True to continue it, or choose another out$"):
        execute_in(tmp_path / "run", CONFIG)
    with pytest.raises(BadInput, match=r"was started with train.steps=24, now asked for 30"):
        execute_in(tmp_path / "run", replace(CONFIG, train=replace(CONFIG.train, steps=30)), resume=True)
    said = []
    execute_in(tmp_path / "run", CONFIG, resume=True, observer=Observer(say=said.append))
    assert "is finished already" in said[0]
    assert _weights(folder) == before


def test_stopping_and_resuming_gives_the_undisturbed_run(tmp_path):
    whole = execute_in(tmp_path / "whole", CONFIG)
    calls = iter(range(1000))
    stop_at_13 = Observer(should_stop=lambda: next(calls) == 12)
    parts = execute_in(tmp_path / "parts", CONFIG, observer=stop_at_13)
    assert not parts.finished
    assert [checkpoint.step for checkpoint in list_checkpoints(parts.checkpoints)][-1] == 13
    execute_in(tmp_path / "parts", CONFIG, resume=True)
    assert _weights(parts) == _weights(whole)
    assert parts.scores() == whole.scores()
    strip = lambda lines: [{k: v for k, v in line.items() if k != "samples_per_second"} for line in lines]  # noqa: E731
    assert strip(parts.metrics()) == strip(whole.metrics())


def test_stopping_while_testing_loses_only_the_test(tmp_path):
    whole = execute_in(tmp_path / "whole", CONFIG)
    calls = iter(range(1000))
    folder = execute_in(tmp_path / "run", CONFIG, observer=Observer(should_stop=lambda: next(calls) >= 26))
    assert not folder.finished
    execute_in(tmp_path / "run", CONFIG, resume=True)
    assert folder.scores() == whole.scores()


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A run in a process of its own, with the command and the environment that started it."""
    recipe = {
        "task": "parity_scratchpad",
        "ids": {"name": "coupled", "max_id": 60},
        "model": {"layers": 2, "width": 32, "heads": 2},
        "train": {"lengths": "1..6", "steps": 400, "batch_size": 8, "validate_every": 50},
        "execution": {"save_every": 7},
        "evaluate": {"lengths": [3, 6], "samples": 20, "free_samples": 8},
    }
    place = tmp_path_factory.mktemp("whole")
    path = place / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    command = [sys.executable, "-m", "longreach.cli.main", "run", str(path), "--device", "cpu", "--threads", "1"]
    command += ["--json", "--out"]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    subprocess.run([*command, str(place / "out")], check=True, capture_output=True, env=environment)
    return RunFolder(place / "out" / "seed-0"), command, environment


@pytest.mark.parametrize("attempt", range(3))
def test_a_run_killed_at_a_random_moment_resumes_bit_for_bit(whole_run, tmp_path, attempt):
    """SIGKILL leaves no time to tidy up; the moment differs from attempt to attempt."""
    whole, command, environment = whole_run
    command = [*command, str(tmp_path / "killed")]
    killed = RunFolder(tmp_path / "killed" / "seed-0")
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    while not list_checkpoints(killed.checkpoints) and running.poll() is None:
        time.sleep(0.005)
    time.sleep(random.Random(attempt).uniform(0, 0.8))
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not killed.finished
    subprocess.run([*command, "--resume"], check=True, capture_output=True, env=environment)
    assert _weights(whole) == _weights(killed)
    assert whole.scores() == killed.scores()


def _in_thread(work):
    """Call `work` in another thread and return the exception that it raised."""
    raised = []

    def call():
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_a_second_process_on_a_live_folder_is_refused_until_the_first_is_killed(tmp_path, capsys):
    recipe = {
        "task": "parity_scratchpad",
        "model": {"layers": 1, "width": 16, "heads": 2},
        "train": {"lengths": "1..4", "steps": 1_000_000, "batch_size": 4, "validate_every": 1_000_000},
        "execution": {"save_every": 5, "log_every": 5},
        "evaluate": {"lengths": [2, 4], "samples": 8, "free_samples": 4},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    flags = ["run", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "out"), "--device", "cpu", "--json"]
    first = subprocess.Popen(
        [sys.executable, "-m", "longreach.cli.main", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    folder = RunFolder(tmp_path / "out" / "seed-0")
    try:
        while not list_checkpoints(folder.checkpoints):
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.05)
        events = (folder.path / "log.jsonl").read_text().count('"started"')
        assert main([*flags, "--resume"]) == 2
        told = capsys.readouterr().err.strip()
        assert f"{folder.path} is being worked on by process {first.pid} on {socket.gethostname()} since 20" in told
        assert len(told.splitlines()) == 1
        assert (folder.path / "log.jsonl").read_text().count('"started"') == events
        load_model(folder)  # readers need no lock
    finally:
        first.kill()
        first.communicate()
    stopping = Observer(should_stop=lambda: True)
    info = gather_info("recipe", "", "", 0, "cpu")
    assert not execute(folder.config(), folder, info, "cpu", resume=True, observer=stopping)
    steps = [line["step"] for line in folder.metrics()]
    assert steps == sorted(set(steps))


def test_python_holds_the_folder_as_long_as_the_run_lasts(tmp_path):
    refused = []

    def phase(title, total):
        refused.append(_in_thread(lambda: execute_in(tmp_path / "run", CONFIG, resume=True)))
        return lambda done, note: None

    execute_in(tmp_path / "run", CONFIG, observer=Observer(phase=phase))
    assert len(refused) == 2  # while it trained and while it was tested
    for error in refused:
        assert isinstance(error, BadInput)
        assert f"is being worked on by process {os.getpid()} on" in str(error)
    assert _in_thread(lambda: execute_in(tmp_path / "run", CONFIG, resume=True)) is None


def test_a_run_that_fails_gives_its_folder_back(tmp_path):
    def fail(title, total):
        raise RunFailed("no luck")

    with pytest.raises(RunFailed, match="no luck"):
        execute_in(tmp_path / "run", CONFIG, observer=Observer(phase=fail))
    assert _in_thread(lambda: execute_in(tmp_path / "run", CONFIG, resume=True)) is None
    assert RunFolder(tmp_path / "run").finished


def test_a_refused_run_makes_no_folder(tmp_path):
    with pytest.raises(BadInput):
        execute_in(tmp_path / "run", replace(CONFIG, model=replace(TINY, encoding=LearnedConfig(max_id=3))))
    assert not (tmp_path / "run").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(BadInput, match=r"exists: add resume=True to continue it, or choose another out$"):
        execute_in(tmp_path / "other", CONFIG)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["letter.txt"]


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(BadInput, match=r"run is on a file system without locks \(flock\): choose a folder elsewhere"):
        execute_in(tmp_path / "run", CONFIG)


def test_temporary_files_of_killed_processes_go_at_the_next_start(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    folder = tmp_path / "run"
    stop = iter([False] * 9 + [True])
    execute_in(folder, CONFIG, observer=Observer(should_stop=lambda: next(stop)))
    gone = [folder / f".scores.json.{ended.pid}.part", folder / f".run.json.{os.getpid()}.part"]
    gone += [folder / "checkpoints" / f".step-00000020.safetensors.{number}.part" for number in (1, ended.pid)]
    kept = [folder / f".eval.json.{os.getppid()}.part", folder / ".mine.part"]
    for path in (*gone, *kept):
        path.write_text("half")
    orphan = folder / "checkpoints" / "step-00000007.safetensors"
    orphan.write_text("tensors without a record")
    calls = []

    def phase(title, total):
        calls.append([path.exists() for path in (*gone, orphan)])
        return lambda done, note: None

    execute_in(folder, CONFIG, resume=True, observer=Observer(phase=phase))
    assert not any(calls[0])
    assert all(path.exists() for path in kept)


def test_a_damaged_newest_checkpoint_costs_only_its_steps(tmp_path):
    whole = execute_in(tmp_path / "whole", CONFIG)
    calls = iter(range(1000))
    folder = execute_in(tmp_path / "run", CONFIG, observer=Observer(should_stop=lambda: next(calls) == 12))
    newest = list_checkpoints(folder.checkpoints)[-1].path
    newest.write_bytes(newest.read_bytes()[:100])
    said = []
    execute_in(tmp_path / "run", CONFIG, resume=True, observer=Observer(say=said.append))
    assert "is damaged" in said[0]
    assert "resuming" in said[1]
    assert _weights(folder) == _weights(whole)


def test_a_run_that_went_back_keeps_its_own_checkpoints(tmp_path):
    """Damaged checkpoints of later steps must not count as the newest."""
    config = replace(
        CONFIG,
        train=replace(CONFIG.train, validate_every=100),
        execution=replace(CONFIG.execution, keep_last=1),
    )
    stops = iter([False] * 9 + [True])
    folder = execute_in(tmp_path / "run", config, observer=Observer(should_stop=lambda: next(stops)))
    for step in (15, 20):
        (folder.checkpoints / f"step-{step:08}.safetensors").write_text("cut")
        record = {"step": step, "score": None, "sha256": ""}
        (folder.checkpoints / f"step-{step:08}.json").write_text(json.dumps(record))
    stops = iter([False, True])
    execute_in(folder.path, config, resume=True, observer=Observer(should_stop=lambda: next(stops)))
    assert [checkpoint.step for checkpoint in list_checkpoints(folder.checkpoints)] == [12]
    assert len(list(folder.checkpoints.iterdir())) == 2


def test_a_loss_that_is_not_a_number_names_the_last_good_state(tmp_path):
    spoilt = replace(CONFIG.train, optimizer=OptimizerConfig(lr=1e20, warmup=12, clip=0.0))
    with pytest.raises(RunFailed, match=r"became (nan|inf) at step \d+; (the last good state is step|no checkpoint)"):
        execute_in(tmp_path / "run", replace(CONFIG, train=spoilt, execution=ExecutionConfig(save_every=1)))


def test_selection_is_in_distribution_only(tmp_path):
    config = replace(CONFIG, evaluate=replace(CONFIG.evaluate, select="best_in_distribution"))
    folder = execute_in(tmp_path / "run", config)
    assert folder.card().selection == "the best checkpoint at training lengths"
    # make an early checkpoint the best on record: it must be the one that is used
    early = save_checkpoint(folder.checkpoints, 3, build_model(TINY, 6, seed=77), _optimizer(), score=2.0)
    _, model = load_model(folder)
    assert torch.equal(model.head.weight, build_model(TINY, 6, seed=77).head.weight)
    early.path.unlink()
    early.path.with_suffix(".json").unlink()
    for record in folder.checkpoints.glob("*.json"):
        record.write_text(json.dumps({**json.loads(record.read_text()), "score": None}))
    with pytest.raises(BadInput, match="no checkpoint yet that was measured"):
        load_model(folder)


def _optimizer():
    return build_optimizer(OptimizerConfig(), build_model(TINY, 6, seed=0))


def test_a_start_that_was_killed_at_once_can_be_resumed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{")
    assert execute_in(tmp_path / "run", CONFIG, resume=True).finished


def test_a_resume_elsewhere_is_remembered(tmp_path):
    folder = RunFolder(tmp_path / "run")
    here = gather_info("test", "", "", 0, "cpu")
    calls = iter(range(1000))
    execute(CONFIG, folder, here, "cpu", observer=Observer(should_stop=lambda: next(calls) == 5))
    execute(CONFIG, folder, replace(here, device="another"), "cpu", resume=True)
    assert folder.info().device == here.device
    assert [later["device"] for later in folder.info().resumed] == ["another"]


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    folder = execute_in(tmp_path / "run", CONFIG)
    config = folder.path / "config.yaml"
    config.write_text(config.read_text().replace("width: 32", "width: 64"))
    with pytest.raises(RunFailed, match=r"does not fit the model of its config.yaml"):
        load_model(folder)


def test_axes_vary_the_task_and_impossible_cells_are_left_out(tmp_path):
    task = SparseParity(k=Span(1, 3))
    train = replace(CONFIG.train, lengths=Span(4, 8))
    tests = EvalConfig(lengths=Lengths((4, 8)), axes={"k": [1, 2, 3]}, samples=16, free_samples=4)
    said = []
    config = replace(CONFIG, task=task, train=train, evaluate=tests)
    folder = execute_in(tmp_path / "run", config, observer=Observer(say=said.append))
    cells = {(score.length, score.overrides["k"]) for score in folder.scores()}
    assert cells == {(4, "1"), (4, "2"), (8, "1"), (8, "2"), (8, "3")}
    plan = "plan: cpu, fp32: first layer by token, cpu rotation, cpu batches, cpu optimizer, lockstep decoding"
    assert said == [plan, "left out: sparse_parity: length 4 has 2 pairs, too few for k=3"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model": replace(TINY, encoding=LearnedConfig(max_id=8))}, "training IDs go up to 60, the table ends at 8"),
        (
            {"model": replace(TINY, encoding=LearnedConfig()), "evaluate": EvalConfig(lengths=Lengths((100,)))},
            "position ID 101 is beyond the table, which ends at 60",
        ),
        ({"model": replace(TINY, width=10, heads=2)}, "rope turns 5 of 5 dimensions"),
        (
            {"evaluate": EvalConfig(lengths=Lengths((99,)), relabel_ids=True, free_samples=0)},
            "coupled.max_id=60 is too small: samples have 100 IDs",
        ),
        ({"ids": Coupled(max_id=3)}, "samples have 7 IDs"),
        ({"task": SparseParity(), "evaluate": EvalConfig(lengths=Lengths((7,)))}, "must be even, got 7"),
        ({"evaluate": EvalConfig(axes={"kk": [3]})}, "task.kk: unknown key"),
        (
            {
                "task": VariableAssignment(num_names=60, hops=Span(1, 8)),
                "ids": Sequential(),
                "model": replace(TINY, encoding=LearnedConfig(max_id=29)),
                "evaluate": EvalConfig(lengths=Lengths((12,)), axes={"hops": [8, 1]}),
            },
            "position ID 34 is beyond the table",
        ),
        (
            {"ids": RandomStart(max_id=40), "model": replace(TINY, encoding=LearnedConfig(max_id=30))},
            "training IDs go up to 40, the table ends at 30",
        ),
        (
            {"ids": Randomized(max_id=30), "evaluate": EvalConfig(lengths=Lengths((4, 20)))},
            "max_id=30 is too small to test samples of 43 tokens",
        ),
        (
            {
                "ids": Randomized(max_id=60),
                "model": replace(TINY, encoding=LearnedConfig(max_id=60)),
                "evaluate": EvalConfig(lengths=Lengths((4,)), shift=3),
            },
            "test IDs go up to 63, the table ends at 60",
        ),
        (
            {"task": Copy(), "evaluate": EvalConfig(lengths=Lengths((4,)), axes={"times": [1, 2]})},
            r"times=2 gives each token 2 position IDs, and the model was made for 1",
        ),
    ],
)
def test_what_would_fail_after_training_is_found_before_it(change, complaint):
    with pytest.raises(BadInput, match=complaint):
        check(replace(CONFIG, **change))


def test_a_run_with_randomized_ids_is_tested_with_drawn_ones(tmp_path, capsys):
    config = replace(CONFIG, ids=Randomized(max_id=60), train=replace(CONFIG.train, steps=4))
    folder = execute_in(tmp_path / "run", config)
    told = "a random subset of 0..60 for each sample"
    assert json.loads((folder.path / "card.json").read_text())["test_ids"] == told
    for verb in (["eval", "--lengths", "4", "--samples", "8"], ["inspect", "--length", "4"], ["inspect", "--prompt"]):
        extra = ["0 1 1"] if verb[-1] == "--prompt" else []
        assert main([verb[0], str(folder.path), *verb[1:], *extra, "--device", "cpu", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        if verb[0] == "eval":
            assert {row["test_ids"] for row in found} == {told}
        else:
            gaps = torch.tensor(found["ids"])[:, 0].diff()
            assert (gaps > 0).all()
            assert (gaps > 1).any()
    command = ["predict", str(folder.path), "--prompt", "0 1 1", "--seed", "1", "--device", "cpu", "--json"]
    assert main(command) == 0  # without a temperature the seed draws the IDs
    capsys.readouterr()
    assert main(["eval", str(folder.path), "--lengths", "40", "--samples", "8", "--device", "cpu"]) == 2
    assert "randomized.max_id=60 is too small to test samples of 83 tokens" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"is not a run folder: it has no config.yaml"):
        load_model(RunFolder(tmp_path))
    folder = execute_in(tmp_path / "run", CONFIG)
    (folder.path / "scores.json").write_text("{")
    with pytest.raises(BadInput, match=r"scores.json is damaged"):
        folder.scores()
    (folder.path / "metrics.jsonl").write_text(json.dumps({"step": 1}) + '\n{"st')
    assert folder.metrics() == [{"step": 1}]
