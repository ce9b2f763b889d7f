"""`longreach sweep` as a person or a script meets it; what happens to its processes is tested in tests/sweep."""

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from longreach.cli.main import main
from longreach.live import Progress, write_progress
from longreach.sweeps import make_plan, read_states
from longreach.sweeps.state import note_failure
from longreach.terminal import sweep_table
from longreach.terminal.durations import duration

SWEEP = {
    "task": "parity_scratchpad",
    "model": {"layers": 1, "width": 16, "heads": 2},
    "train": {"lengths": "1..4", "steps": 6, "batch_size": 4},
    "execution": {"save_every": 3, "log_every": 2},
    "evaluate": {"lengths": [2, 4], "samples": 8, "free_samples": 4},
    "grid": {"ids": ["sequential", {"name": "coupled", "max_id": 20}]},
    "seeds": 2,
    "retries": 0,
}
RUN = "tiny/ids=coupled,ids.max_id=20/seed-1"


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(yaml.safe_dump(SWEEP))
    return "tiny.yaml"


def _fails(capsys, arguments, code, *lines):
    assert main(arguments) == code
    told = capsys.readouterr().err.splitlines()
    assert all(line.startswith("longreach: ") for line in told)
    for line in lines:
        assert any(line in one for one in told), told
    return told


def test_a_dry_run_tells_how_many_and_how_long_and_runs_nothing(sweep, capsys):
    assert main(["sweep", "run", sweep, "--dry-run", "--device", "cpu", "--workers", "2"]) == 0
    told = capsys.readouterr().out
    assert "4 runs, 0 finished, 4 to do" in told
    assert f"waiting   {RUN}" in told
    assert "one after the other" in told
    assert "based on 3 training steps of 2 configurations on this machine (cpu)" in told
    assert not Path("runs").exists()
    assert main(["sweep", "run", sweep, "--dry-run", "--device", "cpu", "--backend", "ray", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["waiting"] == 4
    assert found["estimate"]["seconds"] > 0
    assert found["estimate"]["workers"] is None


def test_an_estimate_prefers_finished_runs(sweep, capsys):
    """Those of the same configuration, which took ten seconds here."""
    done = Path("runs/tiny/tiny/ids=sequential/seed-0")
    done.mkdir(parents=True)
    (done / "scores.json").write_text("[]")
    write_progress(done, Progress("done", 1, 1, "", 10.0))
    assert main(["sweep", "run", sweep, "--dry-run", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 10.0 < found["estimate"]["seconds"] < 30.0
    assert found["estimate"]["basis"].startswith("finished runs of 1 configurations; 3 training steps of 1")


def test_status_tells_of_every_run(sweep, capsys):
    assert main(["sweep", "status", sweep]) == 0
    assert "4 runs: 4 waiting" in capsys.readouterr().out
    assert not Path("runs").exists()
    (folder,) = [run.folder(Path("runs/tiny")) for run in make_plan(Path(sweep)).runs if run.name == RUN]
    note_failure(folder, "out of [memory]")
    write_progress(folder.path, Progress("train", 3, 6, "loss 0.5", 1.0))
    assert main(["sweep", "status", sweep, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"finished": 0, "running": 0, "failed": 1, "waiting": 3}
    (run,) = [run for run in found["runs"] if run["name"] == RUN]
    assert run["reason"] == "out of [memory]"
    assert run["progress"]["done"] == 3
    assert main(["sweep", "status", sweep]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "1 failed, 3 waiting" in told


def test_the_live_table_shows_what_runs_and_what_failed_first(sweep, monkeypatch):
    plan, out, drawn = make_plan(Path(sweep)), Path("out"), StringIO()
    note_failure(plan.runs[3].folder(out), "broken")
    terminal = Console(file=drawn, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    monkeypatch.setattr(sweep_table, "say", terminal)
    with sweep_table.live_table(plan, out, quiet=False) as show:
        show()
    told = drawn.getvalue()
    assert "1: broken" in told
    assert told.index("failed") < told.index("waiting")
    assert [state.state for state in read_states(plan, out)] == ["waiting", "waiting", "waiting", "failed"]


def test_bad_usage_is_a_line_and_code_2(sweep, capsys, monkeypatch):
    _fails(capsys, ["sweep", "run", "none.yaml"], 2, "cannot read none.yaml")
    _fails(capsys, ["sweep", "run", sweep, "--workers", "0"], 2, "--workers must be at least 1")
    _fails(capsys, ["sweep", "run", sweep, "--address", "auto"], 2, "--address needs --backend ray")
    _fails(capsys, ["sweep", "run", sweep, "--scratch", "x"], 2, "--scratch needs a URL as --out")
    _fails(capsys, ["sweep", "fetch", "runs/x", "y"], 2, "runs/x is not a URL")
    _fails(capsys, ["sweep", "run", sweep, "--train.steps", "3"], 2, "unknown argument '--train.steps'")
    _fails(capsys, ["sweep", "status", sweep, "--jsn"], 2, "did you mean --json")
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "longreach.sweeps.backends.ray", raising=False)
    _fails(capsys, ["sweep", "run", sweep, "--backend", "ray"], 2, "pip install 'longreach[ray]'")


def test_every_mistake_has_its_line(sweep, capsys):
    Path(sweep).write_text("recipe: dmo\nseeds: 0\ngrid:\n  trian.steps: [3]\n")
    told = _fails(capsys, ["sweep", "run", sweep], 2, "tiny.yaml:1: ", "tiny.yaml:2: ", "tiny.yaml:4: ")
    assert len(told) == 3
    assert not Path("runs").exists()


@pytest.mark.parametrize("part", ["run", "status"])
def test_help(part, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", part, "--help"])
    assert stopped.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_durations_are_told_in_fitting_units():
    assert [duration(seconds) for seconds in (5.0, 120.0, 6000.0, 3e5)] == [
        "5 s",
        "2.0 min",
        "1.7 h",
        "3.5 days",
    ]
