"""The command line as a person or a script meets it."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers import page_data
from rich.console import Console

from longreach.api import EvalConfig, Lengths, Span, TrainConfig
from longreach.cli.main import main, parser
from longreach.config.registry import entries, kinds
from longreach.runs import Observer, RunFolder, check, execute, gather_info, load_recipe, shipped_recipes
from longreach.tasks import Text
from longreach.terminal.progress import watch
from longreach.training import Step, list_checkpoints

RECIPE = {
    "title": "tiny",
    "task": "parity_scratchpad",
    "model": {"layers": 1, "width": 16, "heads": 2},
    "train": {"lengths": "1..4", "steps": 6, "batch_size": 4},
    "execution": {"save_every": 3, "log_every": 2},
    "evaluate": {"lengths": [2, 4, 8], "samples": 8, "free_samples": 4},
    "variants": {"counting": {}, "coupled": {"ids": {"name": "coupled", "max_id": 20}}},
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return str(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of the tiny recipe, with two seeds."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(RECIPE))
    assert (
        main(["run", str(folder / "tiny.yaml"), "--out", str(folder / "out"), "--seeds", "2", "--device", "cpu"]) == 0
    )
    return folder / "out"


def _check_fails(capsys, arguments, code, *words):
    """One line on stderr besides the plan, and the promised exit code."""
    assert main(arguments) == code
    (error,) = (line for line in capsys.readouterr().err.strip().splitlines() if not line.startswith("plan: "))
    assert error.startswith("longreach: ")
    for word in words:
        assert word in error


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_shipped_recipe_parses_and_can_start(name, corpus):
    recipe = load_recipe(name)
    assert recipe.title
    assert recipe.about
    for config in recipe.variants.values():
        if isinstance(config.task, Text):  # whose corpus a user prepares first
            config = replace(config, task=replace(config.task, corpus=corpus))
        check(config)


def test_a_run_ends_with_a_table_a_picture_and_a_page(finished, capsys):
    assert main(["report", str(finished)]) == 0
    printed = capsys.readouterr().out
    assert "reach@0.99" in printed
    assert "counting" in printed
    png, page = finished / "report" / "accuracy.png", finished / "report" / "report.html"
    assert png.read_bytes().startswith(b"\x89PNG")
    data = page_data(page)
    assert [variant["name"] for variant in data["variants"]] == ["counting", "coupled"]
    assert [(run["variant"], run["seed"], run["trained"]) for run in data["runs"]] == [
        (variant, seed, [1, 4]) for variant in (0, 1) for seed in (0, 1)
    ]
    assert data["cards"]["coupled"]["ids supplied by"] == "a rule, from the prompt"
    assert all(curve["step"] for curve in data["training"])
    lines = (finished / "report" / "scores.csv").read_text().splitlines()
    assert lines[0] == "variant,trained_from,trained_to,seed,length,metric,hits,samples,rate,low,high"
    always = [line for line in lines[1:] if "first_error_tenth" not in line]  # these only where there are errors
    assert len(always) == 2 * 2 * 3 * 5  # variants, seeds, lengths, metrics


def test_seeds_have_folders_of_their_own(finished):
    found = sorted(str(path.parent.relative_to(finished)) for path in finished.rglob("config.yaml"))
    assert found == ["counting/seed-0", "counting/seed-1", "coupled/seed-0", "coupled/seed-1"]


def test_running_twice_gives_the_same_scores(recipe, capsys):
    for out in ("a", "b"):
        assert main(["run", recipe, "--out", out, "--device", "cpu", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["results"] == second["results"]
    assert {row["variant"] for row in first["results"]} == {"counting", "coupled"}


def test_flags_change_one_thing(recipe):
    arguments = ["run", recipe, "--out", "out", "--only", "coupled", "--train.optimizer.lr=1e-2", "--train.steps", "4"]
    assert main([*arguments, "--ids.max_id", "33", "--device", "cpu", "--json"]) == 0
    config = yaml.safe_load(Path("out/coupled/seed-0/config.yaml").read_text())
    assert config["train"]["optimizer"]["lr"] == 0.01
    assert config["train"]["steps"] == 4
    assert config["ids"]["max_id"] == 33
    assert not os.path.exists("out/counting")


def test_bad_usage_is_one_line_and_code_2(recipe, capsys, tmp_path):
    _check_fails(capsys, ["run", "dmo"], 2, "unknown recipe 'dmo'; did you mean demo?")
    _check_fails(capsys, ["run", "nothing.yaml"], 2, "there is no recipe file nothing.yaml")
    _check_fails(capsys, ["run", recipe, "--train.stepz", "3"], 2, "train.stepz: unknown key; did you mean steps?")
    _check_fails(capsys, ["run", recipe, "--train.steps"], 2, "--train.steps needs a value")
    _check_fails(capsys, ["run", recipe, "stray"], 2, "unexpected argument 'stray'")
    _check_fails(capsys, ["run", recipe, "--only", "copled"], 2, "no variant 'copled'; did you mean coupled?")
    _check_fails(capsys, ["run", recipe, "--device", "tpux"], 2, "device 'tpux' cannot be used")
    _check_fails(capsys, ["run", recipe, "--model.heads", "3"], 2, "model.width=16 does not split into 3 heads")
    _check_fails(
        capsys,
        ["run", recipe, "--ids.name", "coupled", "--ids.max_id", "2"],
        2,
        "counting: coupled.max_id=2 is too small",
    )
    _check_fails(capsys, ["run", recipe, "--only="], 2, "no variant ''")
    _check_fails(capsys, ["run", recipe, "--seed", "3"], 2, "seed: unknown key; did you mean seeds")
    _check_fails(capsys, ["run", recipe, "--threads", "-1"], 2, "--threads must be in 1..")
    _check_fails(capsys, ["run", recipe, "--device", "meta"], 2, "runs on cpu and cuda")
    _check_fails(capsys, ["run", recipe, "--train.steps", "08"], 2, "train.steps: expected int, got '08'")
    _check_fails(capsys, ["report", str(tmp_path), "--jsn"], 2, "did you mean --json")
    _check_fails(capsys, ["report", "nowhere"], 2, "there is no nowhere")
    _check_fails(capsys, ["report", str(tmp_path)], 2, "no finished run")
    _check_fails(capsys, ["report", str(tmp_path), "--nosuch"], 2, "unknown argument '--nosuch'")
    _check_fails(capsys, ["show", "parity_scratchpd", "--length", "3"], 2, "did you mean parity_scratchpad")
    _check_fails(capsys, ["show", "sparse_parity", "--length", "3"], 2, "must be even")
    _check_fails(capsys, ["list", "tsk"], 2, "did you mean task?")
    _check_fails(capsys, ["predict", str(tmp_path), "--prompt", "1"], 2, "is not a run folder")
    for arguments in ([], ["runn"], ["show", "planted"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
    capsys.readouterr()
    assert not os.path.exists("runs")


def test_a_folder_that_exists_is_refused(recipe, capsys):
    assert main(["run", recipe, "--out", "out", "--device", "cpu", "--json"]) == 0
    capsys.readouterr()
    _check_fails(capsys, ["run", recipe, "--out", "out", "--device", "cpu"], 2, "exists: add --resume")
    assert main(["run", recipe, "--out", "out", "--device", "cpu", "--resume"]) == 0
    assert "nothing to resume" not in capsys.readouterr().err


def test_lines_of_progress_end_with_a_note_or_with_nothing(capsys):
    with watch(Console(stderr=True)) as observer:
        for note in ("loss 3", ""):
            observer.phase("train", 4)(4, note)
    noted, plain = capsys.readouterr().err.splitlines()
    assert noted.endswith(" s left, loss 3")
    assert plain.endswith(" s left")


def test_a_resume_of_nothing_starts_and_says_so(recipe, capsys):
    assert main(["run", recipe, "--out", "out", "--device", "cpu", "--resume"]) == 0
    assert "nothing to resume in out: starting\n" in capsys.readouterr().err


def test_a_failed_run_is_one_line_and_code_1(recipe, capsys):
    spoil = ["--train.optimizer.lr", "1e20", "--train.optimizer.warmup", "0", "--train.optimizer.clip", "0"]
    arguments = [
        "run",
        recipe,
        "--out",
        "out",
        "--only",
        "counting",
        "--device",
        "cpu",
        "--train.steps",
        "40",
        "--json",
    ]
    _check_fails(capsys, [*arguments, *spoil], 1, "out/counting/seed-0", "at step")


def test_an_unwritable_folder_is_one_line_and_code_1(recipe, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    _check_fails(
        capsys, ["run", recipe, "--out", "file/out", "--device", "cpu", "--json"], 1, "cannot write to file/out"
    )


def test_eval_takes_lengths_and_any_task_field(finished, tmp_path, capsys):
    run = str(finished / "coupled" / "seed-0")
    assert main(["eval", run, "--lengths", "2:10:4", "--samples", "6", "--json", "--device", "cpu"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted({row["length"] for row in rows}) == [2, 6, 10]
    assert {row["samples"] for row in rows if row["metric"] == "token_em_tf"} == {6}
    out = tmp_path / "scores.csv"
    assert main(["eval", str(finished), "--lengths", "3", "--samples", "4", "--out", str(out), "--device", "cpu"]) == 0
    assert "reach@0.9" in capsys.readouterr().out
    lines = out.read_text().splitlines()
    assert len([line for line in lines if "token_em_free" in line]) == 4
    assert lines[0] == "run,variant,trained_from,trained_to,seed,length,metric,hits,samples,rate,low,high"
    assert {line.split(",")[1] for line in lines[1:]} == {"counting", "coupled"}
    assert main(["eval", run, "--lengths", "3", "--relabel-ids", "--device", "cpu"]) == 0
    for flags, told in ((["--control", "shuffled"], "shuffled"), (["--shift", "1000"], "shifted by 1000")):
        capsys.readouterr()
        assert main(["eval", run, "--lengths", "3", *flags, "--device", "cpu", "--json"]) == 0
        assert {row["test_ids"] for row in json.loads(capsys.readouterr().out)} == {told}
    capsys.readouterr()
    far = ["eval", run, "--lengths", "30", "--relabel-ids", "--device", "cpu", "--json"]
    _check_fails(capsys, far, 2, "coupled.max_id=20 is too small: samples have 31 IDs")
    _check_fails(capsys, ["eval", run, "--task.k", "3", "--device", "cpu"], 2, "task.k: unknown key")
    _check_fails(capsys, ["eval", run, "--lengths", "5:3", "--device", "cpu"], 2, "lengths must not fall")
    _check_fails(capsys, ["eval", run, "--lengths", "200:100:50", "--device", "cpu"], 2, "not fall: '200:100:50'")
    _check_fails(capsys, ["eval", run, "--k", "3", "--device", "cpu"], 2, "unknown flag --k")
    _check_fails(capsys, ["eval", run, "--out", "x.txt", "--device", "cpu"], 2, ".json or .csv")
    _check_fails(capsys, ["eval", run, "--out", "nodir/x.csv", "--device", "cpu"], 2, "there is no folder nodir")


def test_a_part_run_again_reports_everything_that_is_there(recipe, capsys):
    assert main(["run", recipe, "--out", "out", "--device", "cpu", "--json"]) == 0
    assert (
        main(
            [
                "run",
                "--train.steps",
                "6",
                recipe,
                "--out",
                "out",
                "--device",
                "cpu",
                "--json",
                "--only",
                "coupled",
                "--resume",
            ]
        )
        == 0
    )
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["variant"] for row in last["results"]] == ["counting", "coupled"]


def test_a_table_that_ends_does_not_stop_a_prediction(recipe, capsys):
    learned = ["--model.encoding.name", "learned", "--model.encoding.max_id", "18", "--only", "counting"]
    assert main(["run", recipe, "--out", "out", *learned, "--device", "cpu", "--json"]) == 0
    capsys.readouterr()
    assert main(["predict", "out/counting/seed-0", "--prompt", "101", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected"] == "1 1 0 ."


def test_eval_varies_k(recipe, capsys):
    sparse = [
        "--task.name",
        "sparse_parity",
        "--train.lengths",
        "4..8",
        "--evaluate.lengths",
        "4",
        "--only",
        "counting",
    ]
    assert main(["run", recipe, "--out", "out", *sparse, "--device", "cpu", "--json"]) == 0
    capsys.readouterr()
    axes = ["--lengths", "4:8:2", "--task.k", "1,3", "--json", "--device", "cpu"]
    assert main(["eval", "out/counting/seed-0", *axes]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["length"], row["overrides"]["k"]) for row in rows} == {
        (4, "1"),
        (6, "1"),
        (8, "1"),
        (6, "3"),
        (8, "3"),
    }


def test_predict_draws_tokens_if_asked(finished, capsys):
    run = str(finished / "coupled" / "seed-0")
    hot = ["--temperature", "50", "--top-k", "5", "--top-p", "0.99", "--json", "--device", "cpu"]
    drawn = []
    for seed in ("1", "1", "2"):
        capsys.readouterr()
        assert main(["predict", run, "--prompt", "10110", "--seed", seed, *hot]) == 0
        drawn.append(json.loads(capsys.readouterr().out)["answer"])
    assert drawn[0] == drawn[1] != drawn[2]
    _check_fails(capsys, ["predict", run, "--prompt", "1", "--top-k", "3"], 2, "top_k and top_p need a temperature")
    _check_fails(capsys, ["predict", run, "--prompt", "1", "--seed", "3"], 2, "--seed needs --temperature")
    _check_fails(capsys, ["eval", run, "--lengths", "3", "--prompt-ids-only"], 2, "concerns predicted IDs")


def test_predict_answers_a_prompt(finished, capsys):
    run = str(finished / "coupled" / "seed-0")
    assert main(["predict", run, "--prompt", "1 0 1", "--json", "--device", "cpu"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["prompt"] == "1 0 1 ; ="
    assert result["expected"] == "1 1 0 ."
    assert result["right"] is False  # six steps teach nothing
    assert main(["predict", run, "--prompt", "101", "--max-tokens", "2", "--device", "cpu"]) == 0
    assert "1 0 1 ; =  ->  " in capsys.readouterr().out
    _check_fails(capsys, ["predict", run, "--prompt", "1 2", "--device", "cpu"], 2, "'2' is not a token")
    for none in ("-1", "0"):
        _check_fails(
            capsys, ["predict", run, "--prompt", "1", "--max-tokens", none, "--device", "cpu"], 2, "at least 1"
        )


def test_a_corrupt_checkpoint_is_one_line(finished, tmp_path, capsys):
    import shutil

    run = tmp_path / "copy"
    shutil.copytree(finished / "coupled" / "seed-0", run)
    for file in (run / "checkpoints").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-9])
    _check_fails(capsys, ["predict", str(run), "--prompt", "1", "--device", "cpu"], 1, "is damaged", "checksum")


@pytest.mark.parametrize("task", sorted(set(entries("task")) - {"jsonl", "text"}))
def test_show_explains_a_sample(task, capsys):
    assert main(["show", task, "--length", "6", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tokens"][result["prompt_tokens"] :] == result["answer"]
    assert len(result["depends_on"]) == len(result["answer"])
    assert max(len(places) for places in result["depends_on"].values()) <= result["sparsity"]
    assert main(["show", task, "--length", "6"]) == 0
    assert "depends on" in capsys.readouterr().out


def test_show_of_a_long_sample_shows_its_ends(capsys):
    """All pairs of tokens of this sample would take 40 GB, and its table 200,000 lines."""
    assert main(["show", "parity_scratchpad", "--length", "100000"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 1000
    assert "(99902 more)" in shown
    assert "dependencies are shown of samples of up to 4096 tokens" in shown
    assert main(["show", "parity_scratchpad", "--length", "100000", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["tokens"]) == len(answer["coupled_ids"]["aligned bit"]) == 200_003
    assert answer["depends_on"] is None


def test_list_names_everything(capsys):
    assert main(["list", "--json"]) == 0
    catalogue = json.loads(capsys.readouterr().out)
    for kind in kinds():
        assert {row["name"] for row in catalogue[kind]} == set(entries(kind))
        assert all(row["summary"] for row in catalogue[kind])
        assert all(field["help"] for row in catalogue[kind] for field in row["settings"])
    named = {kind: {row["name"] for row in rows} for kind, rows in catalogue.items()}
    assert named["task"] >= {"planted", "sparse_parity", "parity_scratchpad", "variable_assignment"}
    assert named["ids"] >= {"sequential", "random_start", "pose", "coupled"}
    assert named["encoding"] >= {"none", "learned", "sinusoidal", "rope"}
    assert named["attention"] >= {"softmax", "scaled_softmax"}
    assert "demo" in named["recipe"]
    assert main(["list", "ids"]) == 0
    assert "chunks" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["run", "eval", "predict", "inspect", "show", "check", "report", "list", "diagnose"])
def test_every_verb_has_help(verb, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert "--json" in printed
    if verb == "run":
        assert "--train.optimizer.lr float  [0.0003]  Peak learning rate." in printed


def _every_help():
    """The help of every verb and of what is below it, by name."""
    found, left = {}, [("longreach", parser())]
    while left:
        name, one = left.pop()
        found[name] = one.format_help()
        for action in one._actions:
            if isinstance(action, argparse._SubParsersAction):
                left += [(f"{name} {verb}", below) for verb, below in action.choices.items()]
    return found


def test_help_speaks_of_settings_and_not_of_python(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    for verb, text in _every_help().items():
        assert "%%" not in text, verb
        assert not re.search(r"longreach\.\w|Config\b|dict\[|list\[|\bSpan\b|\bLengths\b|\bAny\]|docs/", text), verb
    run = _every_help()["longreach run"]
    assert "--model.position_head position_head | none  [None]" in run
    assert "--train.lengths range  [1..40]" in run
    assert "--evaluate.axes mapping" in run


def test_lists_end_with_the_end_of_a_sentence(capsys):
    assert main(["list", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    for kind in ("ids", "encoding", "attention", "position_head", "model"):
        for row in shown[kind]:
            assert row["summary"].endswith("."), row["name"]
    (coupled,) = (row for row in shown["ids"] if row["name"] == "coupled")
    assert coupled["summary"].endswith("written so far (Cho et al., NeurIPS 2024).")


def test_only_flags_that_exist_are_suggested(recipe, capsys):
    _check_fails(capsys, ["report", "x", "--path", "y"], 2, "unknown argument '--path'")
    assert "--paths" not in capsys.readouterr().err
    _check_fails(capsys, ["report", "x", "--jsno"], 2, "did you mean --json or --out or --size?")
    _check_fails(capsys, ["sweep", "run", "x.yaml", "--dryrun"], 2, "did you mean --dry-run")
    _check_fails(capsys, ["run", recipe, "--free-samples", "3"], 2, "did you mean evaluate.free_samples?")


def test_a_test_has_one_setting_by_two_names(finished, capsys):
    run, shared = str(finished / "coupled" / "seed-0"), ["--lengths", "2", "--device", "cpu", "--json"]
    answers = []
    for flags in (["--samples", "6", "--free-samples", "3"], ["--evaluate.samples", "6", "--evaluate.free_samples=3"]):
        assert main(["eval", run, *shared, *flags]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert {row["metric"]: row["samples"] for row in answers[0]}["token_em_free"] == 3
    twice = ["--free-samples", "3", "--evaluate.free_samples", "3"]
    _check_fails(capsys, ["eval", run, *twice], 2, "--free-samples and --evaluate.free_samples are one setting")
    _check_fails(capsys, ["eval", run, "--evaluate.samples", "many"], 2, "evaluate.samples: expected int, got 'many'")
    _check_fails(capsys, ["eval", run, "--evaluate.sample", "3"], 2, "did you mean samples")


def test_a_loss_that_is_not_known_yet_is_not_shown(tmp_path, monkeypatch):
    """A GPU is asked for losses only where they are logged: before the first line there is none to show."""
    monkeypatch.setattr(Step, "reads_host", False)
    notes = []
    training = TrainConfig(lengths=Span(1, 4), steps=3, batch_size=4)
    config = replace(
        next(iter(load_recipe("parity_small").variants.values())),
        train=training,
        evaluate=EvalConfig(lengths=Lengths((4,)), samples=4, free_samples=2),
    )
    observer = Observer(phase=lambda title, total: lambda done, note: notes.append((title.split()[0], note)))
    execute(config, RunFolder(tmp_path / "run"), gather_info("", "", "", 0, "cpu"), "cpu", observer=observer)
    *before, last = (note for phase, note in notes if phase == "train")
    assert before == [""] * 3
    assert re.fullmatch(r"loss \d.*", last)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(recipe, tmp_path):
    command = [sys.executable, "-m", "longreach.cli.main", "run", recipe, "--out", "out", "--device", "cpu"]
    command += ["--only", "counting", "--train.steps", "100000", "--threads", "1"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    while not (tmp_path / "out/counting/seed-0/checkpoints").exists() and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130
    resume = re.search(r"To go on: +longreach (run .* --resume)", error)
    assert resume, error
    saved = RunFolder(tmp_path / "out/counting/seed-0")
    reached = list_checkpoints(saved.checkpoints)[-1].step
    logged = (saved.path / "metrics.jsonl").stat().st_size
    again = subprocess.Popen([*command, "--resume"], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    while (saved.path / "metrics.jsonl").stat().st_size <= logged and again.poll() is None:
        time.sleep(0.05)
    again.send_signal(signal.SIGINT)
    _, error = again.communicate(timeout=60)
    assert f"resuming out/counting/seed-0 at step {reached}" in error
    assert list_checkpoints(saved.checkpoints)[-1].step > reached


def test_a_class_of_yours_is_named_by_its_path(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from longreach.api import ParityScratchpad\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(ParityScratchpad):\n"
        '    "Parity again."\n'
        "    shift: int = 0\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["show", "mine.Mine", "--length", "3", "--task.shift", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "mine.Mine"


def test_the_figures_of_the_theory_are_computed_and_drawn(tmp_path, capsys):
    assert main(["theory", "reproduce", "--only", "fixed_schedules,rollouts", "--out", str(tmp_path / "theory")]) == 0
    printed = capsys.readouterr().out
    assert "fixed ID within 2 cells" in printed
    assert "bound 0.7569" in printed  # 3 sqrt(2 / (10 pi))
    assert {path.name for path in (tmp_path / "theory").iterdir()} == {
        "fixed_schedules.csv",
        "rollouts.csv",
        "rollouts.png",
        "figures.json",
    }
    rows = json.loads((tmp_path / "theory" / "figures.json").read_text())
    assert [row["moves"] for row in rows["fixed_schedules"]] == [10, 100, 1000, 10_000]
    assert main(["theory", "reproduce", "--only", "rollout"]) == 2
    assert "did you mean rollouts" in capsys.readouterr().err


def test_samplers_are_timed(tmp_path, capsys):
    command = ["bench", "tasks", "--only", "copy,addition", "--repeats", "2", "--batch", "8", "--device", "cpu"]
    assert main([*command, "--out", str(tmp_path / "speeds.json"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((tmp_path / "speeds.json").read_text())
    assert [row["task"] for row in facts["rows"]] == ["copy", "addition"]
    for row in facts["rows"]:
        assert 90 <= row["tokens"] <= 100
        assert 0 < row["slowest"] <= row["tokens_per_second"] <= row["fastest"]
    assert main(["bench", "tasks", "--only", "copi"]) == 2
    assert "did you mean copy" in capsys.readouterr().err
    assert main(["bench", "tasks", "--repeats", "0"]) == 2


def test_an_encoding_is_exchanged_for_a_test(recipe, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["run", recipe, "--out", str(out), "--only", "counting", "--device", "cpu"]) == 0
    capsys.readouterr()
    command = ["eval", str(out), "--lengths", "4", "--samples", "8", "--json", "--device", "cpu"]
    assert main([*command, "--encoding", "{name: rerope, window: 3}"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["test_ids"] for row in rows} == {"encoded by rerope window 3"}
    assert main([*command, "--encoding", "learned"]) == 2
    assert "learned" in capsys.readouterr().err


def test_a_task_and_a_run_are_diagnosed(finished, tmp_path, capsys):
    folder = str(tmp_path / "diagnosis")
    asked = ["diagnose", "sparse_parity", "--train", "4..12", "--target", "40", "--samples", "32", "--out", folder]
    assert main([*asked, "--task.k", "2"]) == 0
    table = capsys.readouterr().out
    assert "What an answer token needs (the task says so)" in table
    assert "aligned, increasing" in table
    assert {path.name for path in (tmp_path / "diagnosis").iterdir()} == {"diagnosis.json", "diagnosis.png"}
    saved = json.loads((tmp_path / "diagnosis" / "diagnosis.json").read_text())
    assert saved["long"]["k"] == [4, 4, 4]  # two marks and their bits
    run = str(finished / "coupled" / "seed-0")
    assert main(["diagnose", run, "--target", "16", "--samples", "32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "the model's own" in [report["scheme"] for report in found["schemes"]]
    assert found["accuracy"] is not None
    assert found["trained"] == "1..4"


def test_a_diagnosis_that_cannot_be_made_is_one_line(finished, tmp_path, capsys):
    _check_fails(capsys, ["diagnose"], 2, "what is to be diagnosed")
    _check_fails(capsys, ["diagnose", "copy"], 2, "--train 1..40")
    _check_fails(capsys, ["diagnose", "copy", "--train", "1..40", "--target", "30"], 2, "beyond the training lengths")
    _check_fails(capsys, ["diagnose", "copy", "--train", "1..40", "--samples", "3"], 2, "at least 32")
    _check_fails(capsys, ["diagnose", "copy", "--train", "1..40", "--target", "90000"], 2, "too many")
    _check_fails(capsys, ["diagnose", str(finished)], 2, "not a run folder")
    _check_fails(capsys, ["diagnose", str(finished / "coupled" / "seed-0"), "--train", "1..4"], 2, "known of a run")
    _check_fails(capsys, ["diagnose", str(tmp_path / "none.jsonl")], 2, "cannot read")
    _check_fails(capsys, ["diagnose", "copy", "--calibrate", "2"], 2, "no source")
    _check_fails(capsys, ["diagnose", "--calibrate", "2", "--target", "9"], 2, "of its own")
    _check_fails(capsys, ["diagnose", "copy", "--train", "1..40", "--steps", "9"], 2, "--steps is for files")


def test_a_diagnosis_is_calibrated(tmp_path, capsys):
    assert main(["diagnose", "--calibrate", "1", "--out", str(tmp_path)]) == 0
    assert "1 planted tasks" in capsys.readouterr().out
    assert json.loads((tmp_path / "calibration.json").read_text())[0]["k"] == 1
