"""What a run does when the machine lets it down: one clear line, and the last state is kept."""

import errno
import importlib
import json
import os
import sys
from dataclasses import replace

import pytest
import torch
from helpers import execute_in
from test_runs import CONFIG

from longreach.cli.main import main
from longreach.config import dump_yaml, to_plain
from longreach.errors import BadInput, RunFailed
from longreach.runs import Observer, RunFolder
from longreach.system import files
from longreach.training import (
    Step,
    ask_for_repeatable_products,
    deterministic_kernels,
    list_checkpoints,
    newest_intact,
)

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nothing disturbed."""
    return execute_in(tmp_path_factory.mktemp("whole") / "run", CONFIG)


def fails_at(count, original, error):
    """A function that works until it has been called so many times."""
    calls = iter(range(1, 10**9))

    def called(*arguments, **options):
        if next(calls) >= count:
            raise error
        return original(*arguments, **options)

    return called


def recipe(path, config=CONFIG):
    path.write_text(dump_yaml(to_plain(config)))
    return str(path)


def run(tmp_path, *flags):
    out = tmp_path / "out"
    code = main(["run", recipe(tmp_path / "r.yaml"), "--out", str(out), "--device", "cpu", "--json", *flags])
    return code, RunFolder(out / "seed-0")


def one_line(capsys):
    (line,) = (line for line in capsys.readouterr().err.strip().splitlines() if not line.startswith("plan: "))
    assert line.startswith("longreach: ")
    return line


@pytest.mark.parametrize(("count", "step"), [(5, 5), (8, 10)])  # the lock, run.json, config.yaml and plan.json first
def test_a_full_disk_is_one_line_and_the_last_state_is_kept(whole, tmp_path, monkeypatch, capsys, count, step):
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fails_at(count, os.fsync, FULL))
        code, folder = run(tmp_path)
    assert code == 1
    assert f"could not save step {step} to" in (line := one_line(capsys))
    assert "No space left on device; earlier checkpoints are intact" in line
    kept = newest_intact(folder.checkpoints, warn=pytest.fail)
    assert (kept and kept.step) == (step - 5 or None)
    assert not list(folder.checkpoints.glob(".*"))
    execute_in(folder.path, CONFIG, resume=True)
    assert folder.scores() == whole.scores()


def test_a_disk_that_is_full_before_training_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files.os, "fsync", fails_at(4, os.fsync, FULL))
    assert run(tmp_path)[0] == 1
    assert one_line(capsys).endswith("plan.json: No space left on device")


def test_a_disk_that_is_full_for_every_file_is_one_line(tmp_path, monkeypatch, capsys):
    """Not even the log can be written: the line is still about what was to be saved."""
    append = files.append_line

    def no_room(path, line):
        if list_checkpoints(path.parent / "checkpoints"):
            raise RunFailed(f"could not write to {path}: {FULL.strerror}")
        append(path, line)

    for module in ("folder", "journal"):
        monkeypatch.setattr(sys.modules[f"longreach.runs.{module}"], "append_line", no_room)
    monkeypatch.setattr(files.os, "fsync", fails_at(7, os.fsync, FULL))
    code, folder = run(tmp_path)
    assert code == 1
    assert "No space left on device" in one_line(capsys)
    assert [checkpoint.step for checkpoint in list_checkpoints(folder.checkpoints)] == [5]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_metrics_that_cannot_be_written_name_their_file(tmp_path, capsys):
    folder = execute_in(tmp_path / "out" / "seed-0", CONFIG, observer=Observer(should_stop=lambda: True))
    (folder.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunFailed, match=r"metrics\.jsonl: No space left on device"):
        folder.log(1, {"loss": 1.0})
    (folder.path / "log.jsonl").unlink()
    (folder.path / "log.jsonl").symlink_to("/dev/full")
    assert run(tmp_path, "--resume")[0] == 1
    assert one_line(capsys).endswith("log.jsonl: No space left on device")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    """Root may write anywhere, so the refusal is made up."""
    refused = PermissionError(errno.EROFS, os.strerror(errno.EROFS))
    monkeypatch.setattr(type(tmp_path), "mkdir", fails_at(1, None, refused))
    assert run(tmp_path)[0] == 1
    assert "cannot write to" in (line := one_line(capsys))
    assert line.endswith("Read-only file system")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has ..."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
)
def test_lack_of_memory_is_one_line_and_the_last_state_is_kept(tmp_path, monkeypatch, capsys, error):
    with monkeypatch.context() as patch:
        patch.setattr(Step, "differentiate", fails_at(8, Step.differentiate, error))
        code, folder = run(tmp_path)
    assert code == 1
    line = one_line(capsys)
    assert "out of memory: a greater execution.accumulate" in line
    assert f"the last good state is step 5 in {folder.checkpoints}" in line
    last = json.loads((folder.path / "log.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "failed"
    assert newest_intact(folder.checkpoints, warn=pytest.fail).step == 5


def test_lack_of_memory_in_a_test_says_what_needs_less(tmp_path, monkeypatch, capsys):
    module = sys.modules["longreach.runs.scoring"]
    monkeypatch.setattr(module, "evaluate", fails_at(1, None, torch.OutOfMemoryError("CUDA out of memory.")))
    assert run(tmp_path)[0] == 1
    assert (
        "execution.batch_tokens (--batch-tokens) with --resume needs less; the last good state is step 24"
        in one_line(capsys)
    )


def _no_room(*arguments, **options):
    return torch.empty(1 << 50)  # what torch says of it differs from release to release


def _overflow(*arguments, **options):
    return torch.empty(1 << 40, 1 << 40)


def _no_python_room(*arguments, **options):
    raise MemoryError


@pytest.mark.parametrize("lack", [_no_room, _overflow, _no_python_room])
@pytest.mark.parametrize(
    ("module", "name", "command"),
    [
        ("verbs.scoring", "run_test", ["eval", "RUN", "--lengths", "6"]),
        ("verbs.answering", "generate", ["predict", "RUN", "--prompt", "1 0"]),
        ("verbs.inspection", "load_trained", ["inspect", "RUN"]),
        ("verbs.showing", "build_part", ["show", "copy", "--length", "5"]),
        ("cli.run", "check", ["run", "demo", "--out", "RUN/new"]),
        ("reports", "load_results", ["report", "RUN"]),
        ("verbs.exporting", "load_model", ["export", "RUN", "RUN/new"]),
        ("verbs.diagnosing", "diagnose_task", ["diagnose", "copy", "--train", "1..4"]),
    ],
)
def test_lack_of_memory_is_one_line_of_every_verb(whole, monkeypatch, capsys, lack, module, name, command):
    monkeypatch.setattr(importlib.import_module(f"longreach.{module}"), name, lack)
    assert main([word.replace("RUN", str(whole.path)) for word in command]) == 1
    assert one_line(capsys).startswith("longreach: out of memory: ")


def test_an_error_of_ours_is_no_lack_of_memory(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(importlib.import_module("longreach.verbs.showing"), "build_part", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["show", "copy", "--length", "5"])


@pytest.mark.parametrize("threads", ["1000000", "-1"])
def test_threads_that_no_machine_can_start_are_refused(tmp_path, capsys, threads):
    command = ["run", recipe(tmp_path / "r.yaml"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main([*command, "--threads", threads]) == 2
    assert "--threads must be in 1.." in (line := one_line(capsys))
    assert line.endswith(f"got {threads}")
    assert not (tmp_path / "out").exists()


def test_other_errors_are_not_disguised(tmp_path, monkeypatch):
    monkeypatch.setattr(Step, "differentiate", fails_at(3, Step.differentiate, RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        execute_in(tmp_path / "run", CONFIG)


def test_on_a_cpu_deterministic_changes_nothing_and_says_nothing(whole, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    said = []
    config = replace(CONFIG, execution=replace(CONFIG.execution, deterministic=True))
    asked = execute_in(tmp_path / "asked", config, observer=Observer(say=said.append))
    newest = [list_checkpoints(folder.checkpoints)[-1].path.read_bytes() for folder in (whole, asked)]
    assert newest[0] == newest[1]
    assert said == [
        "plan: cpu, fp32: first layer by token, cpu rotation, cpu batches, cpu optimizer, lockstep decoding"
    ]
    assert capsys.readouterr() == ("", "")
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert not torch.are_deterministic_algorithms_enabled()


def test_on_a_gpu_deterministic_holds_while_a_run_lasts(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is put back afterwards
    with deterministic_kernels(True, "cuda"):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(BadInput, match="deterministic comes too late: CUDA has started"):
        ask_for_repeatable_products("cuda:0")
    ask_for_repeatable_products("cpu")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with (
        pytest.raises(BadInput, match=r"deterministic: foo_cuda does not have a deterministic implementation; set it"),
        deterministic_kernels(True, "cuda"),
    ):
        raise RuntimeError("foo_cuda does not have a deterministic implementation. You can turn it off")
