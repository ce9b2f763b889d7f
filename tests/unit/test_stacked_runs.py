"""Seeds trained as one stack leave the folders that they would leave alone."""

import json
import sys
import threading
from dataclasses import replace

import pytest
import torch
from helpers import execute_in
from safetensors.torch import load_file
from test_runs import CONFIG

from longreach.api import ShawConfig
from longreach.cli.main import main
from longreach.errors import BadInput, RunFailed
from longreach.runs import Observer, RunFolder, check, execute, execute_together, gather_info, load_model
from longreach.training import list_checkpoints, save_checkpoint

SEEDS = [5, 2, 7]
STACK = [f"seed-{seed}" for seed in SEEDS]


def run_stack(path, config=CONFIG, observer=None, resume=False):
    folders = [RunFolder(path / f"seed-{seed}") for seed in SEEDS]
    infos = [gather_info("test", "", "", seed, "cpu", STACK) for seed in SEEDS]
    return folders, execute_together([config] * len(SEEDS), folders, infos, "cpu", resume, observer)


def tensors(folder):
    return load_file(list_checkpoints(folder.checkpoints)[-1].path)


def stop_after(calls):
    """An observer that asks to stop when it has been asked so many times."""
    asked = iter(range(10**9))
    return Observer(should_stop=lambda: next(asked) >= calls)


def test_each_seed_is_as_if_it_had_been_alone(tmp_path):
    folders, done = run_stack(tmp_path / "stack")
    assert done
    for seed, folder in zip(SEEDS, folders, strict=True):
        alone = RunFolder(tmp_path / f"alone-{seed}")
        execute(CONFIG, alone, gather_info("test", "", "", seed, "cpu"), "cpu")
        assert {path.name for path in folder.path.iterdir()} == {path.name for path in alone.path.iterdir()}
        mine, theirs = tensors(folder), tensors(alone)
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(mine[name], theirs[name], rtol=1e-3, atol=1e-4)
        losses = [[line["loss"] for line in one.metrics() if "loss" in line] for one in (folder, alone)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)
        assert [(s.length, s.metric) for s in folder.scores()] == [(s.length, s.metric) for s in alone.scores()]
        assert folder.info().stack == STACK
        assert alone.info().stack == []
        load_model(folder)


def test_stopping_and_resuming_a_stack_gives_the_undisturbed_one_bit_for_bit(tmp_path):
    whole, _ = run_stack(tmp_path / "whole")
    parts, done = run_stack(tmp_path / "parts", observer=stop_after(13))
    assert not done
    assert {list_checkpoints(folder.checkpoints)[-1].step for folder in parts} == {14}
    parts, done = run_stack(tmp_path / "parts", resume=True)
    assert done
    for one, other in zip(whole, parts, strict=True):
        mine, theirs = tensors(one), tensors(other)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
        assert one.scores() == other.scores()


def test_a_stack_holds_all_of_its_folders(tmp_path):
    """The second process is a thread here: locks tell threads apart as well."""
    refused = []

    def phase(title, total):
        def work():
            with pytest.raises(BadInput, match="seed-7 is being worked on by process") as raised:
                execute_in(tmp_path / "seed-7", CONFIG, seed=7, resume=True)
            refused.append(raised.value)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return lambda done, note: None

    _, done = run_stack(tmp_path, observer=Observer(phase=phase))
    assert done
    assert len(refused) == 1 + len(SEEDS)  # while the stack trained and while each of its runs was tested


def test_only_runs_that_stopped_at_the_same_step_go_on_together(tmp_path):
    folders, _ = run_stack(tmp_path, observer=stop_after(13))
    for path in folders[1].checkpoints.iterdir():
        path.unlink()
    said, phases = [], []

    def phase(title, total):
        phases.append(title)
        return lambda done, note: None

    _, done = run_stack(tmp_path, observer=Observer(say=said.append, phase=phase), resume=True)
    assert done
    assert any("one after the other" in line for line in said)
    assert [title.split("/")[-1] for title in phases if title.startswith("train")] == ["seed-2", "seed-5, 7"]
    assert all(folder.finished for folder in folders)


def test_a_stack_that_was_killed_while_it_saved_goes_back_to_a_step_that_all_have(tmp_path):
    config = replace(CONFIG, execution=replace(CONFIG.execution, keep_last=1))
    whole, _ = run_stack(tmp_path / "whole", config)
    module = sys.modules["longreach.runs.training"]
    saves = iter(range(1, 100))

    def dying_save(*arguments):
        if next(saves) == 3 * 2 + 2:  # of the third step that is saved, the second seed
            raise KeyboardInterrupt
        return save_checkpoint(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "save_checkpoint", dying_save)
        with pytest.raises(KeyboardInterrupt):
            run_stack(tmp_path / "killed", config)
    newest = [list_checkpoints(RunFolder(tmp_path / "killed" / f"seed-{seed}").checkpoints)[-1].step for seed in SEEDS]
    assert newest == [15, 10, 10]
    killed, _ = run_stack(tmp_path / "killed", config, resume=True)
    for one, other in zip(whole, killed, strict=True):
        mine, theirs = tensors(one), tensors(other)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
        assert one.scores() == other.scores()


def test_a_finished_seed_is_not_run_again(tmp_path):
    folders, _ = run_stack(tmp_path, observer=stop_after(13))
    alone = gather_info("test", "", "", SEEDS[0], "cpu")
    assert execute(CONFIG, folders[0], alone, "cpu", resume=True)
    before = tensors(folders[0])
    _, done = run_stack(tmp_path, resume=True)
    assert done
    assert all(torch.equal(before[name], tensor) for name, tensor in tensors(folders[0]).items())
    assert all(folder.finished for folder in folders)


@pytest.fixture
def spoilt(monkeypatch):
    """The second seed blows up at its first step."""
    module = sys.modules["longreach.runs.execute"]
    built = module.new_model

    def spoil(config, seed, device):
        model = built(config, seed, device)
        if seed == SEEDS[1]:
            with torch.no_grad():
                model.embed.weight.fill_(torch.nan)
        return model

    monkeypatch.setattr(module, "new_model", spoil)


def test_a_seed_that_fails_is_named_and_the_others_are_finished(tmp_path, spoilt):
    with pytest.raises(RunFailed, match=f"seed-{SEEDS[1]}: the loss became nan at step 1"):
        run_stack(tmp_path)
    finished = [RunFolder(tmp_path / f"seed-{seed}").finished for seed in SEEDS]
    assert finished == [True, False, True]


def test_a_seed_that_fails_again_after_an_interruption_does_not_keep_the_others_from_going_on(tmp_path, spoilt):
    folders, done = run_stack(tmp_path, observer=stop_after(13))
    assert not done
    with pytest.raises(RunFailed, match=f"seed-{SEEDS[1]}: the loss became nan at step 1"):
        run_stack(tmp_path, resume=True)
    assert [folder.finished for folder in folders] == [True, False, True]


def test_a_seed_that_cannot_be_tested_is_named_and_the_others_are_tested(tmp_path, monkeypatch):
    module = sys.modules["longreach.runs.execute"]
    tested = module.score_run

    def run_out(run, device, observer):
        if run.seed == SEEDS[0]:
            raise MemoryError
        return tested(run, device, observer)

    monkeypatch.setattr(module, "score_run", run_out)
    with pytest.raises(RunFailed, match="out of memory") as caught:
        run_stack(tmp_path)
    (line,) = caught.value.lines
    assert line.startswith(f"{tmp_path / f'seed-{SEEDS[0]}'}: out of memory")
    assert [RunFolder(tmp_path / f"seed-{seed}").finished for seed in SEEDS] == [False, True, True]


def test_what_cannot_be_stacked_is_found_before_training():
    config = replace(CONFIG, model=replace(CONFIG.model, encoding=ShawConfig()))
    check(config)
    with pytest.raises(BadInput, match="Shaw cannot be stacked"):
        check(config, stacked=True)


def test_the_command_line_stacks_seeds(tmp_path, capsys):
    flags = ["--seeds", "3", "--stack", "2", "--train.steps", "3", "--evaluate.samples", "4"]
    flags += ["--evaluate.free_samples", "2", "--evaluate.lengths", "4", "--device", "cpu", "--only", "aligned"]
    assert main(["run", "demo", *flags, "--out", str(tmp_path / "out"), "--json"]) == 0
    stacks = [json.loads(path.read_text())["stack"] for path in sorted(tmp_path.glob("out/aligned/seed-*/run.json"))]
    assert stacks == [["aligned/seed-0", "aligned/seed-1"]] * 2 + [[]]
    assert main(["run", "demo", "--stack", "0"]) == 2
    assert "--stack must be at least 1" in capsys.readouterr().err


def test_runs_that_differ_in_rate_ids_and_lengths_are_stacked_as_if_alone(tmp_path, capsys):
    recipe = tmp_path / "mixed.yaml"
    recipe.write_text(
        "task: parity_scratchpad\nmodel: {layers: 1, width: 16, heads: 2}\n"
        "evaluate: {lengths: '4', samples: 8, free_samples: 2}\n"
        "train: {lengths: 1..6, steps: 12, batch_size: 8, optimizer: {warmup: 2, lr: 0.01}}\n"
        "execution: {log_every: 3}\n"
        "variants:\n  counting: {}\n  slow: {train: {optimizer: {lr: 0.001}}}\n"
        "  coupled: {ids: {name: coupled, max_id: 60}}\n  longest: {train: {lengths: 6..6}}\n"
        "  wider: {train: {lengths: 1..7}}\n  two layers: {model: {layers: 2}}\n"
        "  shaw: {model: {encoding: shaw}}\n  slow shaw: {model: {encoding: shaw}, train: {optimizer: {lr: 0.001}}}\n"
    )
    for out, stack in (("together", "8"), ("alone", "1")):
        assert (
            main(["run", str(recipe), "--stack", stack, "--out", str(tmp_path / out), "--device", "cpu", "--json"]) == 0
        )
    names = ["counting", "slow", "coupled", "longest"]
    for name in [*names, "wider", "two layers", "shaw", "slow shaw"]:
        mine, theirs = (RunFolder(tmp_path / out / name / "seed-0") for out in ("together", "alone"))
        assert mine.info().stack == ([f"{one}/seed-0" for one in names] if name in names else [])
        together, single = mine.config(), theirs.config()
        assert (together.execution.stack, single.execution.stack) == (8, 1)
        assert together == replace(single, execution=replace(single.execution, stack=8))
        for one, other in zip(mine.metrics(), theirs.metrics(), strict=True):
            assert one.get("loss", 0) == pytest.approx(other.get("loss", 0), rel=1e-4)
            assert one.get("lr", 0) == pytest.approx(other.get("lr", 0))
        weights, alone = tensors(mine), tensors(theirs)
        for key in weights:
            torch.testing.assert_close(weights[key], alone[key], rtol=1e-3, atol=1e-4)
