"""Run folders are read while they are written; what is damaged is named and stops nothing."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from live_runs import advance, finish, make_run, note
from rich.console import Console

from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.live import HEADLINE, SWEEP_LOCK, SweepRecord, Watched, write_sweep
from longreach.live.history import MetricHistory
from longreach.live.tail import Tail
from longreach.reports.curves import HEADLINE as HEADLINE_OF_REPORTS
from longreach.system.lock import hold
from longreach.system.palette import styles
from longreach.terminal.live_table import overview_table, sparkline

MOST = 100


def look(watched, most=MOST, points=10):
    overview = watched.look(most, points)
    return overview, {run.name: run for run in overview.runs}


def lines_of(overview, width=100):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(overview_table(overview, width))
    return console.export_text().splitlines()


@pytest.fixture
def held():
    with ExitStack() as stack:
        yield stack


def test_a_run_whose_lock_is_held_is_running(tmp_path, held, monkeypatch):
    folder = make_run(tmp_path, "demo/a/seed-3", 300)
    held.enter_context(hold(folder / ".run.lock"))
    watched = Watched(tmp_path)
    _, runs = look(watched)
    run = runs["demo/a/seed-3"]
    assert (run.state, run.phase, run.variant, run.seed, run.title) == ("running", "train", "a", 3, "Copying")
    assert (run.step, run.total, run.rate) == (300, 1000, 50)
    assert 10 < run.left <= 14  # 700 steps, less the time since the last line
    assert run.losses[-1] == (300, run.loss)
    assert [step for step, _ in run.scores] == [100, 200, 300]
    assert run.score_name == "in_distribution_em"
    note(folder, "testing")
    advance(folder, 300, 1000, 100)
    assert look(watched)[1]["demo/a/seed-3"].phase == "test"
    finish(folder)
    done = look(watched)[1]["demo/a/seed-3"]
    assert (done.state, done.metric, done.exact) == ("finished", "token_em_free", [(8, 1.0), (16, 0.8), (32, 0.3)])
    assert (done.rate, done.left) == (None, None)


def test_a_run_without_a_process_has_stopped_or_failed(tmp_path):
    make_run(tmp_path, "killed/seed-0", 300)
    note(make_run(tmp_path, "asked/seed-0", 300), "interrupted")
    note(make_run(tmp_path, "nan/seed-0", 300), "gave up", message="the loss became nan")
    note(make_run(tmp_path, "full/seed-0", 300), "failed", message="OSError: no space")
    (make_run(tmp_path, "sweep/seed-0", 300) / "attempts.json").write_text(
        json.dumps({"failures": 3, "step": 200, "reason": "killed by SIGKILL"})
    )
    overview, runs = look(Watched(tmp_path))
    found = {name.partition("/")[0]: (run.state, run.reason) for name, run in runs.items()}
    assert found == {
        "killed": ("stopped", "ended without a word: killed, or its machine was lost"),
        "asked": ("stopped", "interrupted"),
        "nan": ("failed", "the loss became nan"),
        "full": ("failed", "OSError: no space"),
        "sweep": ("failed", "killed by SIGKILL"),
    }
    assert overview.counts == {"failed": 3, "stopped": 2}


def test_one_run_of_a_stack_that_was_given_up_has_failed_while_the_others_run(tmp_path, held):
    folder = make_run(tmp_path, "a/seed-0", 300, events=("started", "gave up", "checkpoint"))
    held.enter_context(hold(folder / ".run.lock"))
    assert look(Watched(tmp_path))[1]["a/seed-0"].state == "failed"
    note(folder, "started")
    assert look(Watched(tmp_path))[1]["a/seed-0"].state == "running"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("metrics.jsonl", '{"step": 1, "loss\n{"step": 2}\n', "metrics.jsonl is damaged in line 1: "),
        ("metrics.jsonl", '{"loss": 1}\n', "metrics.jsonl is damaged in line 1: it has no 'step'"),
        ("metrics.jsonl", '{"step": 1, "loss": NaN}\n', "metrics.jsonl is damaged in line 1: loss is not a finite"),
        ("metrics.jsonl", "[]\n", "metrics.jsonl is damaged in line 1: it is no object"),
        ("metrics.jsonl", "\0" * 100 + "\n", "metrics.jsonl is damaged in line 1: "),
        ("log.jsonl", "{]\n", "log.jsonl is damaged: "),
        ("run.json", '{"recipe": "r"', "run.json is damaged: "),
        ("run.json", '{"recipe": "r", "variant": 5, "seed": 0}', "run.json is damaged: variant, seed or title"),
        ("config.yaml", "task: copy\n", "config.yaml is damaged: it has no train.steps"),
        ("config.yaml", "\0\xff", "config.yaml is damaged: it has no train.steps"),
        ("attempts.json", "[[[", "attempts.json is damaged: "),
        ("scores.json", "[{}]", "scores.json is damaged: it has no 'metric'"),
        ("scores.json", '[{"metric": "token_em_free", "overrides": {}, "hits": 5, "samples": 2, "length": 1}]',
         "scores.json is damaged: 5 hits of 2 samples"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named_and_the_others_are_shown(tmp_path, name, content, reason):
    folder = make_run(tmp_path, "bad/seed-0", 100)
    (folder / name).write_text(content)
    make_run(tmp_path, "good/seed-0", 300)
    overview, runs = look(Watched(tmp_path))
    assert runs["bad/seed-0"].state == "damaged"
    assert runs["bad/seed-0"].reason.startswith(reason)
    assert runs["good/seed-0"].state == "stopped"
    assert any(reason[:20] in line for line in lines_of(overview))


def test_a_running_run_stays_running_when_a_line_is_damaged(tmp_path, held):
    folder = make_run(tmp_path, "a/seed-0", 100)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"st\n{"step": 200, "loss": 0.5}\n')
    held.enter_context(hold(folder / ".run.lock"))
    run = look(Watched(tmp_path))[1]["a/seed-0"]
    assert (run.state, run.step, run.loss) == ("running", 200, 0.5)
    assert "metrics.jsonl is damaged in line 3" in run.reason


def test_half_a_line_is_read_when_it_is_whole(tmp_path):
    folder = make_run(tmp_path, "a/seed-0", 100)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 200, "lo')
    watched = Watched(tmp_path)
    run = look(watched)[1]["a/seed-0"]
    assert (run.state, run.step) == ("stopped", 100)
    assert run.reason.endswith("metrics.jsonl within a line")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('ss": 0.5}\n')
    run = look(watched)[1]["a/seed-0"]
    assert (run.step, run.loss) == (200, 0.5)
    assert "within a line" not in run.reason


def test_metrics_that_a_resumed_run_rewrote_replace_the_old_ones(tmp_path):
    folder = make_run(tmp_path, "a/seed-0", 500)
    watched = Watched(tmp_path)
    assert look(watched)[1]["a/seed-0"].step == 500
    temporary = folder / ".metrics.part"
    temporary.write_text("".join((folder / "metrics.jsonl").read_text().splitlines(keepends=True)[:4]))
    temporary.replace(folder / "metrics.jsonl")
    run = look(watched)[1]["a/seed-0"]
    assert (run.step, [step for step, _ in run.losses]) == (200, [100, 200])


def test_a_tail_reads_only_what_is_new(tmp_path, monkeypatch):
    path, taken = tmp_path / "x.jsonl", []
    tail = Tail(path)
    tail.read(taken.append)
    path.write_text('{"a": 1}\n{"a": 2}\n')
    tail.read(taken.append)
    with path.open("a") as file:
        file.write('{"a": 3}\n')
    read = []
    monkeypatch.setattr("longreach.live.tail.parse_json", lambda line: read.append(line) or json.loads(line))
    tail.read(taken.append)
    tail.read(taken.append)
    assert read == [b'{"a": 3}']
    assert [line["a"] for line in taken] == [1, 2, 3]


def test_a_tail_of_a_long_log_begins_with_a_whole_line(tmp_path):
    path, taken = tmp_path / "x.jsonl", []
    path.write_text("".join(json.dumps({"event": "x" * 50, "n": n}) + "\n" for n in range(1000)))
    tail = Tail(path, last=500)
    tail.read(taken.append)
    assert tail.problem == ""
    assert taken[-1]["n"] == 999
    assert 1 < len(taken) < 10


def test_a_line_without_an_end_is_named_and_not_kept(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"x" * (3 << 20))
    tail = Tail(path)
    tail.read(lambda values: None)
    assert tail.problem == f"{path} is damaged: a line has no end"


def test_a_sweep_has_runs_that_wait_and_runs_that_are_tried_again(tmp_path, held):
    names = tuple(f"grid/lr={rate}/seed-0" for rate in (1, 2, 3, 4))
    write_sweep(tmp_path / "s", SweepRecord("Rates", 1, names))
    held.enter_context(hold(make_run(tmp_path / "s", names[0], 100) / ".run.lock"))
    for name, failures in ((names[1], 1), (names[2], 2)):
        facts = json.dumps({"failures": failures, "step": 0, "reason": "too large"})
        (make_run(tmp_path / "s", name, 100) / "attempts.json").write_text(facts)
    watched = Watched(tmp_path)
    expected = ["running", "failed", "failed", "waiting"]
    overview, runs = look(watched)
    assert [runs[f"s/{name}"].state for name in names] == expected
    assert [(sweep.name, sweep.title, sweep.runs, sweep.running) for sweep in overview.sweeps] == [
        ("s", "Rates", 4, False)
    ]
    with hold(tmp_path / "s" / SWEEP_LOCK):
        overview, runs = look(watched)
    assert [runs[f"s/{name}"].state for name in names] == ["running", "waiting", "failed", "waiting"]
    assert runs[f"s/{names[1]}"].reason == "too large"
    assert overview.sweeps[0].running
    (tmp_path / "s" / "sweep.json").write_text('{"title": "x"')
    overview, runs = look(Watched(tmp_path))
    assert len(runs) == 3
    assert "sweep.json is damaged" in overview.problems[0]


def test_a_look_writes_nothing_and_leaves_the_lock_to_others(tmp_path):
    folder = make_run(tmp_path, "a/seed-0", 100)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    watched = Watched(tmp_path)
    look(watched)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    with hold(folder / ".run.lock"):
        assert look(watched)[1]["a/seed-0"].state == "running"
    assert look(watched)[1]["a/seed-0"].state == "stopped"


def test_new_and_removed_runs_are_seen(tmp_path):
    watched = Watched(tmp_path)
    assert lines_of(look(watched)[0])[-1] == f"no run in {tmp_path} yet"
    folder = make_run(tmp_path, "a/seed-0", 100)
    assert set(look(watched)[1]) == {"a/seed-0"}
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert look(watched)[1] == {}


def test_many_runs_are_counted_and_only_the_urgent_ones_shown(tmp_path, held, monkeypatch):
    for number in range(500):
        folder = tmp_path / f"v{number}" / "seed-0"
        folder.mkdir(parents=True)
        for name in ("config.yaml", "run.json", "scores.json"):
            source = tmp_path / "v0" / "seed-0" / name
            if number:
                (folder / name).hardlink_to(source)
        if not number:
            finish(make_run(tmp_path, "w/seed-0", 1000))
            for path in (tmp_path / "w" / "seed-0").iterdir():
                path.replace(folder / path.name)
    held.enter_context(hold(make_run(tmp_path, "z/seed-0", 100) / ".run.lock"))
    note(make_run(tmp_path, "y/seed-0", 100), "failed", message="why")
    for folder in tmp_path.glob("*/seed-0"):
        os.utime(folder, (10**9, 10**9))
    watched = Watched(tmp_path)
    overview, _ = look(watched, most=5)
    assert [run.state for run in overview.runs] == ["running", "failed", "finished", "finished", "finished"]
    assert overview.counts == {"running": 1, "failed": 1, "finished": 500}
    assert overview.left_out == 497
    assert "502 runs: 1 running, 1 failed, 500 finished; 497 of them are not shown" in " ".join(lines_of(overview, 200))
    opened = []
    monkeypatch.setattr("longreach.live.run.read_json", lambda path, make: opened.append(path))
    look(watched, most=5)
    assert opened == []


def test_a_curve_keeps_its_ends_in_limited_memory():
    curve = MetricHistory()
    for step in range(100_000):
        curve.add(step, step / 2)
    assert len(curve.steps) <= 512
    points = curve.points(100)
    assert len(points) == 100
    assert (points[0], points[-1]) == ((0, 0.0), (99_999, 49_999.5))
    assert MetricHistory().points(10) == []


def test_the_table_fits_and_shows_names_as_text(tmp_path, held):
    held.enter_context(hold(make_run(tmp_path, "a\x1b[31m[red]b/seed-0", 300) / ".run.lock"))
    overview, runs = look(Watched(tmp_path))
    (run,) = runs.values()
    assert len(sparkline(run)) == 3
    assert sparkline(run)[0] == "█"
    assert set(sparkline(run, "ab")) == {"a", "b"}
    for width in (60, 80, 120):
        printed = "\n".join(lines_of(overview, width))
        assert max(map(len, printed.splitlines())) <= width
        assert "300/1000" in printed
        assert ("50/s" in printed) == (width >= 100)


def test_the_order_of_metrics_is_that_of_reports():
    assert HEADLINE == HEADLINE_OF_REPORTS


def test_the_command_prints_a_table_or_json(tmp_path, capsys):
    finish(make_run(tmp_path, "a/seed-0", 1000))
    assert main(["watch", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "a/seed-0" in printed
    assert "1 run: 1 finished" in " ".join(printed.split())
    assert main(["watch", str(tmp_path), "--once"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["watch", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["counts"] == {"finished": 1}
    assert (facts["runs"][0]["name"], facts["runs"][0]["exact"][0]) == ("a/seed-0", [8, 1.0])


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--every", "0"], "--every must be in 0.2..3600 seconds, got 0"),
        (["--every", "nan"], "--every must be in 0.2..3600 seconds, got nan"),
        (["--port", "5"], "--port concerns the page: add --serve"),
        (["--serve", "--port", "70000"], "--port must be in 0..65535, got 70000"),
        (["--serve", "--once"], "--serve goes on until it is stopped: leave out --once"),
        (["--serve", "--json"], "--serve goes on until it is stopped: leave out --json"),
    ],
)
def test_flags_that_do_not_fit_are_refused(tmp_path, capsys, flags, error):
    assert main(["watch", str(tmp_path), *flags]) == 2
    assert error in " ".join(capsys.readouterr().err.split())


def test_a_folder_that_does_not_exist_and_a_url_are_refused(tmp_path):
    with pytest.raises(BadInput, match="there is no folder"):
        Watched(tmp_path / "no")
    assert main(["watch", "s3://bucket/x"]) == 2


def test_the_command_imports_no_torch(tmp_path):
    make_run(tmp_path, "a/seed-0", 100)
    script = (
        "import sys; from longreach.cli.main import main; main(['watch', sys.argv[1]]); "
        "print({'torch', 'numpy', 'yaml', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_runs_have_the_colours_of_their_variants_in_reports(tmp_path):
    variants = ["counting", "published", "aligned"]
    for name in ("r/aligned/seed-0", "r/aligned/seed-1", "r/counting/seed-0"):
        record = make_run(tmp_path, name, 100) / "run.json"
        record.write_text(json.dumps({**json.loads(record.read_text()), "variants": variants}))
    shown = Watched(tmp_path).look(10, 10).to_json()["runs"]
    looks = styles(variants)
    assert {run["name"]: run["colour"] for run in shown} == {
        "r/aligned/seed-0": looks["aligned"]["color"],
        "r/aligned/seed-1": looks["aligned"]["color"],
        "r/counting/seed-0": looks["counting"]["color"],
    }
