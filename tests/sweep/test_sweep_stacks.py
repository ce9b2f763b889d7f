"""Runs of a sweep that are trained as one computation: which they are, and that each is as if it had been alone."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from sweeping import LONG, TINY, kill, process_of, start, wait_for_a_checkpoint, wait_until, write

from longreach.cli.main import main
from longreach.live import read_progress
from longreach.runs import RunFolder, execute, execute_together, gather_info
from longreach.sweeps import make_plan, read_states
from longreach.training import list_checkpoints

IDS = ["sequential", {"name": "coupled", "max_id": 20}]
MIXED = {**TINY, "seeds": 2, "grid": {"ids": IDS, "train.optimizer.lr": [1e-3, 4e-3]}}
"""Eight runs that may share a stack."""


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    return lambda content: make_plan(write(folder / "s.yaml", content))


def stacks(plan):
    return [job.names for job in plan.jobs]


def sweep(file, out, *flags):
    return main(["sweep", "run", str(file), "--out", str(out), "--device", "cpu", *flags])


def tensors(folder):
    return load_file(list_checkpoints(folder.checkpoints)[-1].path)


@settings(max_examples=8)
@given(
    seeds=st.integers(1, 4),
    rates=st.integers(1, 3),
    layers=st.sampled_from([[1], [1, 2]]),
    stack=st.integers(1, 9),
)
def test_stacks_are_filled_with_runs_that_are_alike(plan_of, seeds, rates, layers, stack):
    grid = {"model.layers": layers, "train.optimizer.lr": [1e-3 * (n + 1) for n in range(rates)]}
    content = {**TINY, "seeds": seeds, "stack": stack, "grid": grid}
    plan = plan_of(content)
    assert sorted(name for names in stacks(plan) for name in names) == sorted(run.name for run in plan.runs)
    for depth in layers:
        alike = [run.name for run in plan.runs if run.variation.config.model.layers == depth]
        cut = [alike[first : first + stack] for first in range(0, len(alike), stack)]
        assert [names for names in stacks(plan) if names[0] in alike] == cut
    assert stacks(plan_of(content)) == stacks(plan)


def test_rates_ids_and_seeds_share_a_stack_and_blocks_do_not(plan_of):
    (names,) = stacks(plan_of({**MIXED, "stack": 8}))
    assert names == [run.name for run in plan_of(MIXED).runs]
    assert len(names) == 8
    blocks = [{**MIXED, "name": name, "stack": 8} for name in ("one", "two")]
    for block in blocks:
        del block["title"]
    assert [len(names) for names in stacks(plan_of({"runs": blocks}))] == [8, 8]


def test_what_may_not_be_stacked_stays_alone(plan_of):
    """Other shapes, other steps, and a model that knows nothing of stacks."""
    others = [{"model.width": 32}, {"train.steps": 7}, {"model.encoding": "shaw"}, {"train.lengths": "1..5"}]
    rates = [{"train.optimizer.lr": rate} for rate in (1e-3, 2e-3)]
    plan = plan_of({**TINY, "stack": 8, "list": [rates[0], *others, rates[1]]})
    assert sorted(map(len, stacks(plan))) == [1, 1, 1, 1, 2]
    assert [f"s/train.optimizer.lr={rate}/seed-0" for rate in (0.001, 0.002)] in stacks(plan)


def test_variations_in_a_stack_are_as_if_alone(tmp_path, capsys):
    file, out = write(tmp_path / "s.yaml", {**MIXED, "seeds": 1, "stack": 4}), tmp_path / "out"
    assert sweep(file, out) == 0
    plan = make_plan(file)
    names = [run.name.removeprefix("s/") for run in plan.runs]
    for run in plan.runs:
        mine, alone = run.folder(out), RunFolder(tmp_path / "alone" / run.name)
        execute(run.variation.config, alone, gather_info("x", "", "", run.seed, "cpu"), "cpu")
        assert mine.config() == run.variation.config
        assert (mine.info().variant, mine.info().seed, mine.info().stack) == (run.variation.name, run.seed, names)
        losses = [[line["loss"] for line in one.metrics() if "loss" in line] for one in (mine, alone)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)
        for (key, weight), other in zip(tensors(mine).items(), tensors(alone).values(), strict=True):
            torch.testing.assert_close(weight, other, rtol=1e-3, atol=1e-4, msg=key)
        assert [(s.length, s.metric) for s in mine.scores()] == [(s.length, s.metric) for s in alone.scores()]
    assert len({read_progress(run.folder(out).path) for run in plan.runs}) == 1
    # one more seed of each: finished runs keep their places in the stacks
    capsys.readouterr()
    assert sweep(write(file, {**MIXED, "seeds": 2, "stack": 4}), out, "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["counts"]["finished"], told["counts"]["waiting"], told["estimate"]["computations"]) == (4, 4, 2)
    assert told["estimate"]["basis"] == "finished runs of 4 configurations"


def test_a_stack_that_is_disturbed_goes_on_as_a_stack(tmp_path):
    """First its process is killed, then the sweep itself, which is started anew."""
    content = {**LONG, "seeds": 1, "stack": 4, "grid": MIXED["grid"], "train": {**LONG["train"], "steps": 300}}
    file, out = write(tmp_path / "long.yaml", content), tmp_path / "out"
    plan = make_plan(file)
    first, *others = (run.folder(out).path for run in plan.runs)
    log = first / "log.txt"
    driver = start(file, out)
    wait_for_a_checkpoint(others[-1])
    states = read_states(plan, out)
    assert {state.state for state in states} == {"running"}
    assert len({state.progress for state in states}) == 1
    kill(process_of(first))
    wait_until(lambda: log.read_text().count("resuming ") == 4)
    driver.kill()
    assert driver.communicate()[1].count("killed by SIGKILL; tries left: 2") == 4
    assert not list(out.rglob("scores.json"))
    assert sweep(file, out, "--json") == 0
    assert all(log.read_text().count(f"resuming {folder} at step") == 2 for folder in (first, *others))
    assert "different steps" not in log.read_text()
    assert not any((folder / "log.txt").exists() for folder in others)
    wholes = [RunFolder(tmp_path / "whole" / run.name) for run in plan.runs]
    infos = [gather_info("x", "", "", run.seed, "cpu") for run in plan.runs]
    assert execute_together([run.variation.config for run in plan.runs], wholes, infos, "cpu")
    for run, whole in zip(plan.runs, wholes, strict=True):
        disturbed = run.folder(out)
        assert disturbed.scores() == whole.scores()
        assert all(torch.equal(weight, tensors(whole)[key]) for key, weight in tensors(disturbed).items())


def test_a_model_that_blows_up_is_given_up_and_named_and_the_others_are_finished(tmp_path, capsys):
    rates = [1e-3, 1e20, 1e21]
    train = {**TINY["train"], "steps": 40, "optimizer": {"clip": 0, "warmup": 0}}
    content = {**TINY, "train": train, "seeds": 2, "stack": 6, "retries": 1, "grid": {"train.optimizer.lr": rates}}
    file, out = write(tmp_path / "s.yaml", content), tmp_path / "out"
    assert sweep(file, out, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"finished": 2, "running": 0, "failed": 4, "waiting": 0}
    for run in found["runs"]:
        assert (run["state"] == "finished") == ("lr=0.001" in run["name"])
        assert run["failures"] == (0 if run["state"] == "finished" else 2)
        if run["failures"]:
            assert run["reason"].startswith(f"{out / run['name']}: the ")
            assert run["reason"].count("at step") == 1  # each has its own reason, and no other's
    log = (out / found["runs"][0]["name"] / "log.txt").read_text()
    assert log.count("process ") == 2
    assert log.count("is finished already") == 2  # they are not run again with those that are


def test_a_dry_run_tells_how_many_computations_there_are(tmp_path, capsys):
    file = write(tmp_path / "s.yaml", {**MIXED, "stack": 3})
    flags = ("--dry-run", "--workers", "9")
    assert sweep(file, tmp_path / "out", *flags) == 0
    told = capsys.readouterr().out
    assert "8 runs, 0 finished, 8 to do, as computations: 3" in told
    assert "by 3 at a time" in told
    assert "3 training steps of 4 configurations" in told
    assert sweep(file, tmp_path / "out", *flags, "--json") == 0
    estimate = json.loads(capsys.readouterr().out)["estimate"]
    assert estimate["computations"] == 3
    assert estimate["seconds"] > 0
    assert not (tmp_path / "out").exists()
