"""`longreach run --profile` as a person or a script meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from test_cli import RECIPE

from longreach.cli.main import main
from longreach.cli.profile import WrittenProfile, profile_tables
from longreach.runs import RunFolder
from longreach.runs.operators import OperatorRow, Operators
from longreach.runs.profile_result import PhaseTime, ProfileResult, Section, TrainingSpeed
from longreach.terminal.console import out
from longreach.training import list_checkpoints

STEPS = {"steps": 30, "lengths": "1..4", "batch_size": 4, "validate_every": 15}


def _run(folder, *flags):
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "train": STEPS, "execution": {"save_every": 15, "log_every": 2}}))
    return main(["run", str(path), "--device", "cpu", *flags])


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Both variants with two seeds each, in stacks of two, with a profile and without."""
    folder = tmp_path_factory.mktemp("profiled")
    assert _run(folder, "--out", str(folder / "plain"), "--seeds", "2", "--stack", "2") == 0
    assert _run(folder, "--out", str(folder / "out"), "--seeds", "2", "--stack", "2", "--profile") == 0
    return folder


def _facts(folder):
    return json.loads((folder / "profile.json").read_text())


def test_a_profile_changes_no_bit_of_a_run(profiled):
    for name in ("counting/seed-0", "counting/seed-1", "coupled/seed-0"):
        plain, measured = RunFolder(profiled / "plain" / name), RunFolder(profiled / "out" / name)
        for one, other in zip(*(list_checkpoints(each.checkpoints) for each in (plain, measured)), strict=True):
            mine, theirs = load_file(one.path), load_file(other.path)
            assert mine.keys() == theirs.keys()
            assert all(mine[key].equal(theirs[key]) for key in mine)
        lines = [
            [{key: value for key, value in line.items() if key not in ("samples_per_second", "time")} for line in each]
            for each in (plain.metrics(), measured.metrics())
        ]
        assert lines[0] == lines[1]
        assert plain.scores() == measured.scores()


def test_phases_add_up_to_the_whole_command(profiled):
    facts = _facts(profiled / "out")
    assert sum(phase["seconds"] for phase in facts["phases"]) == pytest.approx(facts["seconds"])
    assert all(phase["seconds"] > 0 for phase in facts["phases"])
    names = [phase["name"] for phase in facts["phases"]]
    for name in ("checking recipe and task", "building models", "preparing the step", "first step", "training steps"):
        assert name in names
    for name in ("validation", "saving checkpoints", "logging", "testing, one pass", "report", "other"):
        assert name in names
    within = [phase["seconds"] for section in facts["sections"] for phase in section["phases"]]
    assert sum(within) < facts["seconds"]
    assert 0 < facts["seconds_to_first_step"] < facts["seconds"]


def test_each_stack_has_a_section_with_its_speed_its_operators_and_its_tests(profiled):
    facts = _facts(profiled / "out")
    assert {"recipe", "command", "device", "torch", "threads", "commit", "date", "since"} <= facts.keys()
    assert [section["runs"] for section in facts["sections"]] == [
        [f"{variant}/seed-0", f"{variant}/seed-1"] for variant in ("counting", "coupled")
    ]
    for section in facts["sections"]:
        (training,) = section["training"]
        assert (training["models"], training["first"], training["steps"]) == (2, 0, 30)
        assert 0 < training["median_milliseconds"] <= training["slowest_milliseconds"]
        assert training["samples_per_second"] == pytest.approx(8 * training["steps_per_second"])
        assert training["waiting_share"] is None
        found = training["operators"]
        assert (found["kind"], found["steps"]) == ("operators", 8)
        assert len(found["rows"]) == 26
        assert found["rows"][-1]["name"].endswith("others")
        assert sum(row["share"] for row in found["rows"]) == pytest.approx(1)
        assert any(row["group"] == "products" and row["calls"] > 0 for row in found["rows"])
        assert 0 < training["busy_share"] < 1
        assert [test["length"] for test in section["tests"]] == [2, 4, 8]
        assert all(test["one_pass"] > 0 and test["free_running"] > 0 for test in section["tests"])


def test_the_page_says_what_the_file_does(profiled):
    page = (profiled / "out" / "profile.md").read_text()
    assert page.startswith("# Profile of tiny\n")
    for title in (
        "Where the time went",
        "counting/seed-0 and 1 more: training",
        "8 training steps",
        "seconds of the test",
    ):
        assert title in page
    assert "| aten::" in page
    assert "the first training step ended after" in page


def test_tables_fit_a_terminal_and_json_has_the_profile(tmp_path, capsys):
    assert _run(tmp_path, "--out", str(tmp_path / "a"), "--only", "coupled", "--profile") == 0
    printed = capsys.readouterr().out
    for words in ("Where the time went", "training steps", "Python, between operators", "free-running", "profile.md"):
        assert words in printed
    shown = printed[printed.index("Where the time went") :].splitlines()
    assert max(len(line) for line in shown if not line.startswith("profile ")) <= 80
    flags = ["--only", "coupled", "--json", "--profile", "--profile-steps", "0"]
    assert _run(tmp_path, "--out", str(tmp_path / "b"), *flags) == 0
    facts = json.loads(capsys.readouterr().out)["profile"]
    assert facts == _facts(tmp_path / "b")
    assert facts["sections"][0]["training"][0]["operators"] is None
    assert _run(tmp_path, "--out", str(tmp_path / "b"), *flags, "--resume") == 0  # nothing is left to do
    (section,) = json.loads(capsys.readouterr().out)["profile"]["sections"]
    assert (section["training"], section["tests"]) == ([], [])


def test_a_process_of_its_own_is_measured_from_its_start(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(RECIPE))
    command = [sys.executable, "-m", "longreach", "run", "tiny.yaml", "--only", "counting", "--device", "cpu"]
    done = subprocess.run([*command, "--profile", "--out", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = _facts(tmp_path / "out")
    assert facts["since"] in ("the start of the process", "the import of the command line")
    start = facts["phases"][0]
    assert start["name"] == "interpreter and imports"
    assert start["seconds"] > 0.1  # torch alone takes longer
    assert facts["seconds"] > facts["seconds_to_first_step"] > start["seconds"]


@pytest.mark.parametrize(
    ("flags", "processes", "complaint"),
    [
        (["--profile"], "2", "--profile measures one process: start it without torchrun"),
        (["--profile", "--profile-steps", "-1"], "1", "--profile-steps must be 0 or more, got -1"),
        (["--profile-steps", "3"], "1", "add --profile"),
    ],
)
def test_refusals_are_one_line(tmp_path, monkeypatch, capsys, flags, processes, complaint):
    monkeypatch.setenv("WORLD_SIZE", processes)
    assert _run(tmp_path, "--out", str(tmp_path / "out"), *flags) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_kernels_of_a_gpu_are_told_with_its_busy_share(capsys):
    rows = (OperatorRow("nvjet_" + "tst" * 40, "products", 2.0, 3.0, 0.75), OperatorRow("_forward", "", 1.0, 1.0, 0.25))
    kernels = Operators("kernels", 32, 4.0, 3.0, rows, (3.0, 1.0))
    for found, words in (
        (
            kernels,
            "4.000 ms of kernels a step, during 3.000 ms of it: the GPU is busy for 60% of a median step; by stream",
        ),
        (Operators("kernels", 32, 0.0, 0.0, ()), "torch.profiler traced no kernels"),
    ):
        speed = TrainingSpeed(1, 0, 100, 67, 5.0, 9.0, 200.0, 800.0, 9000.0, 0.25, found)
        section = Section(("a/seed-0",), (), (speed,), ())
        phases = (PhaseTime("other", 2.0, 1.0),)
        tables = profile_tables(ProfileResult(2.0, "the start of the process", 1.0, phases, (section,)))
        WrittenProfile({}, Path("out"), tables).print(out)
        printed = capsys.readouterr().out
        assert words in printed.replace("\n", " ")
        assert "25.0%" in printed
