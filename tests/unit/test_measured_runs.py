"""Measures of runs: in the run folder, on the command line, in reports."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers import TINY, execute_in

import longreach as lr
from longreach.api import (
    EvalConfig,
    Lengths,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RecurrentConfig,
    RunConfig,
    Sequential,
    Span,
    TrainConfig,
    VariableAssignment,
    build_model,
)
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.evaluation import Measures, measures_from_json, measures_to_json
from longreach.evaluation.evaluate import Cell
from longreach.evaluation.measures import Measure, read_names
from longreach.evaluation.measuring import inapplicable, measure_cell, measures_of_cell
from longreach.reports import load_results, measure_tables, measures_data, measures_figure
from longreach.reports.measures import measured_runs
from longreach.runs import Observer, RunFolder, load_model, plan_measures
from longreach.training import list_checkpoints

CHAIN = VariableAssignment(num_names=40, hops=Span(1, 3), echo=True, end="marked")
POINTER = replace(TINY, position_head=PointerConfig())
ORIGIN = {"device": "cpu", "commit": "abc", "date": "2026-01-01"}
ALL = ("mass", "margin", "token_margin")

CONFIG = RunConfig(
    task=CHAIN,
    ids=Predicted(max_id=40),
    model=POINTER,
    train=TrainConfig(lengths=Span(3, 6), steps=2, batch_size=4),
    evaluate=EvalConfig(lengths=Lengths((4, 8)), samples=6, free_samples=2),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return execute_in(tmp_path_factory.mktemp("measured") / "run", CONFIG)


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of a finished run."""
    return RunFolder(shutil.copytree(trained.path, tmp_path / "run"))


def measure(folder, *lengths, names=("mass", "margin"), **settings):
    lr.evaluate(folder.path, lengths=list(lengths), measure=names, device="cpu", free_samples=0, **settings)
    return folder.measures()


def test_measures_are_kept_and_merged_cell_by_cell(folder):
    first = measure(folder, 4, 8)
    assert {entry.length for entry in first.entries} == {4, 8}
    assert {entry.level for entry in first.entries if entry.measure == "margin"} == {"statement", "token in statement"}
    heads = {(entry.layer, entry.head) for entry in first.entries if entry.measure == "mass"}
    assert heads == {(layer, head) for layer in range(2) for head in range(2)}
    assert first.step == 2
    assert {head.length for head in first.chosen} == {6}
    second = measure(folder, 8, 12, samples=4)
    assert second.chosen == first.chosen
    samples = {length: {e.samples for e in second.entries if e.length == length} for length in (4, 8, 12)}
    assert samples == {4: {6}, 8: {4}, 12: {4}}
    kept = [entry for entry in second.entries if entry.length == 4]
    assert kept == [entry for entry in first.entries if entry.length == 4]
    control = measure(folder, 8, control="shuffled", names="mass")
    assert {entry.ids for entry in control.entries if entry.length == 8} == {"plain", "shuffled"}
    assert {entry.ids for entry in control.entries if entry.length == 12} == {"plain"}
    assert measures_from_json(json.loads(json.dumps(measures_to_json(control)))) == control


def test_measures_belong_to_the_samples_of_the_test_and_to_one_checkpoint(folder):
    measures = measure(folder, 8, names="token_margin")
    (entry,) = measures.entries
    config, model = load_model(folder)
    found = measure_cell(
        model,
        config.ids,
        Cell(config.task, 8, {}),
        config.evaluate.of_run(0),
        ("token_margin",),
        "cpu",
        config.execution.batch_tokens,
    )
    (again,) = measures_of_cell(found, Cell(config.task, 8, {}), config.evaluate, [], ORIGIN)
    assert (again.mean, again.samples) == (pytest.approx(entry.mean, abs=1e-5), entry.samples)
    right = next(s for s in lr.evaluate(folder.path, lengths=8, device="cpu") if s.metric == "token_accuracy")
    assert (entry.steps, entry.not_ahead) == (right.samples, right.samples - right.hits)
    of_another = Measures(measures.step + 1, (), [])
    assert measures.merge(of_another) == of_another


def test_cells_that_were_measured_are_kept_when_the_work_is_interrupted(folder, monkeypatch):
    def interrupted(model, policy, cell, *others):
        if cell.length == 8:
            raise KeyboardInterrupt
        return measure_cell(model, policy, cell, *others)

    monkeypatch.setattr("longreach.runs.measuring.measure_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(folder, 4, 6, 8)
    assert {entry.length for entry in folder.measures().entries} == {4, 6}


def test_dependencies_that_fit_into_no_memory_are_refused_before_the_test():
    config = replace(CONFIG, task=ParityScratchpad())
    far = EvalConfig(lengths=Lengths((2_000_000,)), samples=1, free_samples=0)
    model = build_model(TINY, 10, 0)
    with pytest.raises(BadInput, match=r"measuring at length 2000000 needs about .* TB .*: measure shorter lengths"):
        plan_measures(model, config, far, ("mass",), "cpu", 1 << 16, Observer())


def test_a_varied_task_has_cells_of_its_own(folder):
    entries = measure(folder, 8, axes={"hops": [1, 2]}, names="margin").entries
    assert {entry.setting for entry in entries} == {"hops=1", "hops=2"}


def test_measures_without_a_place_or_a_meaning_are_refused(folder, monkeypatch):
    with pytest.raises(BadInput, match="unknown measure 'depth'; known: mass, margin, token_margin"):
        measure(folder, 4, names="mass,depth")
    with pytest.raises(BadInput, match="no measure is named"):
        measure(folder, 4, names=())
    with pytest.raises(BadInput, match="measure writes into a run folder, which a model from memory does not have"):
        lr.evaluate(load_model(folder), measure="mass")
    task = ParityScratchpad()
    recurrent = build_model(RecurrentConfig(layers=1, width=8), len(task.vocabulary), 0)
    config = EvalConfig(samples=2, free_samples=0)
    assert inapplicable(recurrent, task, Sequential(), config, ALL, 4) == {
        "mass": "a recurrent model has no attention to look at",
        "margin": "IDs sequential are not predicted",
    }
    monkeypatch.setattr(ParityScratchpad, "depends_on", lr.Task.depends_on)
    plain = build_model(TINY, len(task.vocabulary), 0)
    (reason,) = inapplicable(plain, task, Sequential(), config, ("mass", "token_margin"), 4).items()
    assert reason == ("mass", "parity_scratchpad does not say what its answers depend on")
    assert read_names(" margin,mass") == ("mass", "margin")


def test_runs_without_predicted_ids_have_no_margin(tmp_path, capsys):
    config = replace(CONFIG, ids=Sequential(), model=TINY)
    run = execute_in(tmp_path / "runs" / "plain" / "seed-0", config)
    command = ["eval", str(run.path), "--lengths", "4", "--device", "cpu", "--free-samples", "0"]
    capsys.readouterr()
    assert main([*command, "--measure", "margin"]) == 2
    assert capsys.readouterr().err.strip() == "longreach: margin does not apply: IDs sequential are not predicted"
    assert run.measures() is None
    assert main([*command, "--measure", "mass,margin"]) == 0
    assert "margin does not apply: IDs sequential are not predicted" in capsys.readouterr().err
    assert {entry.measure for entry in run.measures().entries} == {"mass"}


def test_a_folder_of_runs_is_measured_run_by_run(folder, tmp_path, capsys):
    shutil.copytree(folder.path, tmp_path / "runs" / "a" / "seed-0")
    execute_in(tmp_path / "runs" / "b" / "seed-0", replace(CONFIG, ids=Sequential(), model=TINY))
    capsys.readouterr()
    command = ["eval", str(tmp_path / "runs"), "--lengths", "4,8", "--device", "cpu", "--measure", "margin"]
    assert main([*command, "--json", "--free-samples", "0"]) == 0
    told = capsys.readouterr()
    assert "b/seed-0: margin does not apply" in told.err
    rows = [row for row in json.loads(told.out) if "measure" in row]
    assert {(row["measure"], row["length"], row["seed"]) for row in rows} == {("margin", 4, 0), ("margin", 8, 0)}
    assert RunFolder(tmp_path / "runs" / "b" / "seed-0").measures() is None
    assert main([*command, "--out", str(tmp_path / "out.csv")]) == 2
    assert "scores and measures do not share columns" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "out.json")]) == 0
    printed = capsys.readouterr().out
    assert "margin of the true ID" in printed
    assert "statement: not ahead" in printed
    assert {row.get("measure") for row in json.loads((tmp_path / "out.json").read_text())} == {None, "margin"}


CHANGES = [
    {"length": 0},
    {"length": "4"},
    {"mean": 1.5},
    {"mean": float("nan")},
    {"lowest": -1},
    {"samples": 0},
    {"samples": 10**6},
    {"deviation": -1.0},
    {"even": 2},
    {"layer": None},
    {"head": -1},
    {"measure": "margin"},
    {"measure": "depth"},
    {"overrides": []},
    {"overrides": {"k": 1}},
    {"ids": 3},
    {"unknown": 1},
]


@pytest.fixture(scope="module")
def written(trained, tmp_path_factory):
    """The content of measures.json."""
    folder = RunFolder(shutil.copytree(trained.path, tmp_path_factory.mktemp("written") / "run"))
    measure(folder, 4)
    return json.loads((folder.path / "measures.json").read_text())


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_measure_that_cannot_be_is_one_line(folder, written, changes):
    first, *rest = written["measures"]
    path = folder.path / "measures.json"
    path.write_text(json.dumps({**written, "measures": [{**first, **changes}, *rest]}))
    with pytest.raises(BadInput, match=r"measures\.json is damaged") as caught:
        folder.measures()
    assert "\n" not in str(caught.value)


EMPTY = {"schema": 1, "step": 1, "chosen": [], "measures": []}
NONSENSE = ["[]", "{}", "", "\x80", "[" * 100_000]
NONSENSE += [
    json.dumps({**EMPTY, **changes})
    for changes in ({"schema": 2}, {"step": "x"}, {"chosen": {}}, {"more": 1}, {"chosen": [{"layer": 0}]})
]


@pytest.mark.parametrize("content", NONSENSE, ids=lambda content: content[:70])
def test_nonsense_in_place_of_measures_is_one_line_before_any_work(folder, capsys, content):
    path = folder.path / "measures.json"
    path.write_bytes(content.encode("latin-1"))
    capsys.readouterr()
    assert main(["eval", str(folder.path), "--measure", "mass", "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "measures.json is damaged" in line
    assert len(line) < 1000


def test_a_measure_is_there_once(folder, written):
    twice = {**written, "measures": written["measures"][:1] * 2}
    (folder.path / "measures.json").write_text(json.dumps(twice))
    with pytest.raises(BadInput, match="a measure is there twice"):
        folder.measures()


def test_reports_get_rows_tables_and_a_panel_for_each_measure(folder, tmp_path):
    (bare,), _ = load_results([folder.path])
    assert measures_data([bare]) == []
    assert measures_figure([bare]) is None
    assert measure_tables(measured_runs([bare])) == []
    measure(folder, 4, 8, names="mass")
    results, _ = load_results([folder.path])
    assert [axis.get_title() for axis in measures_figure(results).axes] == ["attention on the true dependencies"]
    measure(folder, 4, 8, names="margin")
    measure(folder, 8, names="mass", control="shuffled")  # of no report
    results, _ = load_results([folder.path])
    figure = measures_figure(results, "title")
    assert len(figure.axes) == 2
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[-3:] == ["even attention", "thin: seeds, other heads, lowest 1% of steps", "training lengths"]
    box, whole = legend.get_window_extent(), figure.bbox
    assert box.x0 >= 0
    assert box.x1 <= whole.x1
    assert all(axis.lines for axis in figure.axes)
    rows = measures_data(results)
    entries = [entry for entry in folder.measures().entries if entry.ids == "plain"]
    assert len(rows) == len(entries)
    for row, entry in zip(rows, entries, strict=True):
        assert row["low"] <= row["mean"] == entry.mean <= row["high"]
        assert row["trained"] == (row["length"] <= 6)
    best = [row for row in rows if row["best"] and row["dependency"] is None]
    (name,) = {row["name"] for row in best}
    head = folder.measures().chosen[0]
    assert name == f"layer {head.layer} head {head.head}"
    assert {row["name"] for row in rows if row["measure"] == "margin"} == {"statement", "token in statement"}
    mass, margin = measure_tables(measured_runs(results))
    assert [str(cell) for cell in mass.columns[1].cells] == ["best head", "even attention"]
    assert margin.row_count == 4


def test_a_file_of_eval_is_reported_as_its_run(folder, tmp_path, capsys):
    file = tmp_path / "why.json"
    flags = ["--lengths", "4,8", "--measure", "mass,margin", "--device", "cpu"]
    assert main(["eval", str(folder.path), *flags, "--out", str(file)]) == 0
    of_run, _ = load_results([folder.path])
    of_file, problems = load_results([file])
    assert problems == []
    assert [result.trained_lengths for result in of_file] == [(3, 6)]
    unnamed = [{**row, "variant": ""} for row in measures_data(of_run)]
    assert unnamed == [{**row, "variant": ""} for row in measures_data(of_file)]
    assert any(row["best"] for row in unnamed)
    drawn = tmp_path / "why.svg"
    assert main(["report", str(file), "--figure", "mass", "--out", str(drawn)]) == 0
    assert drawn.stat().st_size > 1000


def test_a_damaged_row_of_a_measure_is_refused_in_one_line(tmp_path):
    row = {"measure": "mass", "length": 4, "mean": 2.0}
    (tmp_path / "why.json").write_text(json.dumps([row]))
    with pytest.raises(BadInput, match=r"why\.json"):
        load_results([tmp_path / "why.json"])


def test_names_of_levels_are_drawn_as_they_are(folder):
    measures = measure(folder, 4, names="margin")
    evil = [replace(entry, level=f"$x^2$ \x1b[31m {entry.level}") for entry in measures.entries]
    folder.save_measures(replace(measures, entries=evil))
    results, _ = load_results([folder.path])
    figure = measures_figure(results)
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sum(r"\$x^2\$" in text for text in shown) == 2
    assert not any("\x1b" in text for text in shown)


def test_intervals_are_those_of_a_mean():
    entry = Measure(
        measure="mass", length=4, layer=0, head=0, mean=0.5, deviation=0.2, lowest=0.1, samples=100, steps=300,
        even=0.1, test_seed=0, **ORIGIN,
    )  # fmt: skip
    assert entry.interval() == pytest.approx((0.5 - 1.96 * 0.02, 0.5 + 1.96 * 0.02))
    assert replace(entry, deviation=0.2, mean=0.99).interval()[1] == 1.0
    assert replace(entry, deviation=None, samples=1).interval() is None


def test_measures_name_the_step_of_their_checkpoint(folder):
    assert list_checkpoints(folder.checkpoints)[-1].step == measure(folder, 4, names="token_margin").step
