"""Sweeps in processes of this machine, some of which are killed."""

import json
import os
import signal

import pytest
from sweeping import (
    ENDLESS,
    LONG,
    TINY,
    check_whole,
    finish,
    kill,
    process_of,
    start,
    wait_for_a_checkpoint,
    wait_until,
    write,
)

from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.reports import load_results
from longreach.sweeps import LocalBackend, Resources, make_plan
from longreach.sweeps import job as job_module
from longreach.sweeps.backends import local
from longreach.sweeps.order import make_order


def test_a_killed_job_goes_on_and_hurts_no_other(tmp_path):
    file, out = write(tmp_path / "long.yaml", LONG), tmp_path / "out"
    driver = start(file, out, "--workers", "2")
    first = out / "long" / "seed-0"
    wait_for_a_checkpoint(first)
    kill(process_of(first))
    told = finish(driver)
    assert told.count("failed: ") == 1
    assert "seed-0: killed by SIGKILL; tries left: 2" in told
    assert f"resuming {first} at step" in (first / "log.txt").read_text()
    check_whole(file, out, tmp_path / "undisturbed")


def test_a_killed_driver_leaves_no_lock_and_no_job_and_ctrl_c_saves(tmp_path):
    file, out = write(tmp_path / "endless.yaml", ENDLESS), tmp_path / "out"
    driver = start(file, out, "--workers", "1")
    first = out / "endless" / "seed-0"
    wait_for_a_checkpoint(first)
    refused = start(file, out)
    assert f"{out} is being worked on by process {driver.pid}" in finish(refused, 2)
    driver.kill()
    driver.communicate()
    wait_until(lambda: "stopped; everything is saved" in (first / "log.txt").read_text())
    again = start(file, out, "--workers", "1")
    wait_until(lambda: f"resuming {first} at step" in (first / "log.txt").read_text())
    assert main(["sweep", "status", str(file), "--out", str(out)]) == 0
    again.send_signal(signal.SIGINT)
    told = finish(again, 130)
    assert f"To go on:  longreach sweep run {file} --out {out}" in told
    assert (first / "log.txt").read_text().count("stopped; everything is saved") == 2
    assert not list(out.rglob("attempts.json"))


def test_seeds_are_stacked_failures_reported_and_results_read_at_any_time(tmp_path, capsys):
    """One configuration learns, one cannot: its loss is spoilt at once, every time."""
    spoilt = {"train.optimizer.lr": 1e20, "train.optimizer.clip": 0, "train.optimizer.warmup": 0, "train.steps": 40}
    content = {**TINY, "seeds": 2, "stack": 2, "retries": 1, "list": [{"train.steps": 6}, spoilt]}
    file, out = write(tmp_path / "s.yaml", content), tmp_path / "out"
    assert main(["sweep", "run", str(file), "--out", str(out), "--device", "cpu", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"finished": 2, "running": 0, "failed": 2, "waiting": 0}
    for run in found["runs"]:
        assert (run["state"] == "failed") == ("lr=1e+20" in run["name"])
        if run["state"] == "failed":
            assert run["failures"] == 2
            assert "at step" in run["reason"]
    results, unfinished = load_results([out])
    assert [result.info.stack for result in results] == [[f"train.steps=6/seed-{seed}" for seed in range(2)]] * 2
    assert len(unfinished) == 2
    assert main(["sweep", "status", str(file), "--out", str(out)]) == 0
    assert "2 finished, 2 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gpus", "share", "workers", "places"),
    [
        ([], None, 3, [None] * 3),
        (["0", "1"], None, None, ["0", "1"]),
        (["2", "5"], 0.5, None, ["2", "5", "2", "5"]),
        (["2", "5"], 0.5, 3, ["2", "5", "2"]),
        (["0"], 0.0, 2, [None, None]),
    ],
)
def test_gpus_are_handed_out_in_turn(monkeypatch, gpus, share, workers, places):
    monkeypatch.setattr(local, "visible_gpus", lambda: gpus)
    assert LocalBackend(Resources(gpus=share), workers).devices == places


def test_gpus_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setattr(local, "visible_gpus", list)
    with pytest.raises(BadInput, match="this machine has no GPU"):
        LocalBackend(Resources(gpus=1.0))
    monkeypatch.setattr(local, "visible_gpus", lambda: ["0"])
    with pytest.raises(BadInput, match=r"workers=3: 2 runs with 0\.5 of a GPU each fit on 1"):
        LocalBackend(Resources(gpus=0.5), 3)


def test_a_job_asks_for_repeatable_products_before_it_looks_at_the_gpu(tmp_path, monkeypatch):
    settings = {**TINY, "execution": {**TINY["execution"], "deterministic": True}}
    (job,) = make_plan(write(tmp_path / "sweep.yaml", settings)).jobs
    order = make_order(job, tmp_path / "out", threads=1).on("cuda")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen = []

    def look(device):
        seen.append((device, os.environ.get("CUBLAS_WORKSPACE_CONFIG")))
        return "cpu"

    monkeypatch.setattr(job_module, "choose_device", look)
    assert job_module._work(order, lambda: False) == 0
    assert seen == [("cuda", ":4096:8")]
