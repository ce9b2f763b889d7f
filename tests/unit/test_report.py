"""Curves, tables and what a report calls things."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
from helpers import TINY, execute_in, page_data
from rich.console import Console
from synthetic_runs import make_runs

from longreach.api import (
    EvalConfig,
    Lengths,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RunConfig,
    Span,
    TrainConfig,
)
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.evaluation import Loss, Score, make_card
from longreach.reports import FigureConfig, Result, RunResult, headline_groups, load_results, score_table, write_report
from longreach.reports.curves import DRAWN, Curve, Group, drawn, group, has_exact_match
from longreach.reports.paper import draw_figure
from longreach.reports.tables import reach_text

CONFIG = RunConfig(
    task=ParityScratchpad(),
    model=TINY,
    train=TrainConfig(lengths=Span(1, 4), steps=2, batch_size=4),
    evaluate=EvalConfig(lengths=Lengths((2, 4, 8)), samples=4, free_samples=2),
)


def _group(variant, *seeds, setting=""):
    curves = [
        Curve(variant, setting, seed, "token_em_free", [Score(seed, n, "token_em_free", hits, 10) for n, hits in curve])
        for seed, curve in enumerate(seeds)
    ]
    return Group(variant, setting, "token_em_free", curves, trained_to=20)


LONG = [(n, 10) for n in (10, 20, 40, 80, 160, 320, 640, 1000, 2000)]
SHORT = [(n, 10 if n <= 40 else 3) for n, _ in LONG]


@pytest.mark.parametrize(
    "groups",
    [
        [_group("a", LONG), _group("b", SHORT)],
        [_group("a name that is far too long for a table", LONG), _group("b", SHORT)],
        [_group("a", LONG, SHORT, LONG)],
        [_group("a", LONG, SHORT, setting="k=12"), _group("a", LONG, setting="k=4")],
    ],
)
def test_no_table_loses_a_figure(groups):
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(score_table(groups, "title", console.width))
    printed = console.export_text()
    assert "…" not in printed
    assert "reach@0.99" in printed
    assert "2000" in printed


def test_reach_runs_from_the_worst_seed_to_the_best():
    assert reach_text(_group("a", LONG), 0.9) == "2000 (100x)"
    assert reach_text(_group("a", LONG, SHORT), 0.9) == "40..2000 (2x..100x)"
    assert reach_text(replace(_group("a", LONG), trained_to=2), 0.9) == "2000 (1000x)"
    both = _group("a", LONG, SHORT, LONG)
    assert both.middle()[2000] == 1.0
    assert both.worst()[2000] == 0.3


def test_runs_with_other_settings_are_never_taken_for_seeds(tmp_path):
    execute_in(tmp_path / "one" / "seed-0", CONFIG)
    execute_in(tmp_path / "one" / "seed-1", CONFIG, seed=1)
    results, _ = load_results([tmp_path])
    assert {result.variant for result in results} == {"test"}
    assert len(group(results, "token_em_tf")) == 1
    execute_in(tmp_path / "two" / "seed-0", replace(CONFIG, train=replace(CONFIG.train, steps=3)))
    results, _ = load_results([tmp_path / "one", tmp_path / "two"])
    assert [result.variant for result in results] == ["one", "one", "two"]
    report = write_report(results, tmp_path / "report")
    assert report.png.exists()


def test_a_run_that_generated_nothing_stands_in_and_says_so(tmp_path):
    execute_in(tmp_path / "free" / "seed-0", CONFIG)
    silent = replace(CONFIG, evaluate=replace(CONFIG.evaluate, free_samples=0))
    execute_in(tmp_path / "silent" / "seed-0", silent)
    groups = headline_groups(load_results([tmp_path])[0])
    assert [(g.variant, g.metric) for g in groups] == [
        ("free", "token_em_free"),
        ("silent (one pass)", "token_em_tf"),
    ]
    assert [g.metric for g in headline_groups(load_results([tmp_path / "silent"])[0])] == ["token_em_tf"]


def test_without_generation_predicted_ids_count(tmp_path):
    config = replace(
        CONFIG,
        ids=Predicted(max_id=40),
        model=replace(TINY, position_head=PointerConfig()),
        evaluate=replace(CONFIG.evaluate, free_samples=0),
    )
    execute_in(tmp_path / "seed-0", config)
    results = load_results([tmp_path])[0]
    assert [g.metric for g in headline_groups(results)] == ["token_id_em_tf"]
    assert write_report(results, tmp_path / "report").png.exists()
    assert (tmp_path / "report" / "errors.png").exists()


def test_unfinished_runs_are_named_not_dropped(tmp_path):
    folder = execute_in(tmp_path / "run", CONFIG)
    (folder.path / "scores.json").unlink()
    with pytest.raises(BadInput, match="no finished run"):
        load_results([tmp_path])
    execute_in(tmp_path / "other", CONFIG)
    results, unfinished = load_results([tmp_path])
    assert len(results) == 1
    assert unfinished == [f"{folder.path} is not finished"]


def test_a_report_of_many_variants_draws_some_and_lists_all(tmp_path):
    folders = make_runs(tmp_path / "runs", 2 * (DRAWN + 6), seeds=2)
    card = make_card(CONFIG.task, CONFIG.ids, tuple(range(1, 41)), CONFIG.evaluate, None)
    for folder in folders:
        (folder / "card.json").write_text(json.dumps(asdict(card)))
    report = write_report(load_results([tmp_path / "runs"])[0], tmp_path / "report")
    data = page_data(report.html)
    assert len(data["variants"]) == len(data["cards"]) == DRAWN + 6
    assert len(data["runs"]) == 2 * (DRAWN + 6)
    assert set(data["runs"][0]["fields"]) == {"model.width", "train.optimizer.lr"}
    assert len(report.groups) == DRAWN + 6
    assert len({line.split(",")[0] for line in report.csv.read_text().splitlines()[1:]}) == DRAWN + 6


def _exact(variant, seed=0, hits=5):
    return Result("x", variant, seed, [Score(seed, n, "token_em_free", hits, 10) for n in (10, 20)])


def _loss(variant):
    return Result("x", variant, 0, [], losses=[Loss(0, "context", n, 2.0, None, None, 64, 8) for n in (16, 64)])


def test_variants_that_a_figure_does_not_show_take_no_place_in_it(tmp_path):
    results = [*(_loss(f"text {n}") for n in range(DRAWN)), *(_exact(f"v{n}") for n in range(3))]
    figure, notes = draw_figure(results, FigureConfig())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["v0", "v1", "v2"]
    assert notes == []
    assert draw_figure(results, FigureConfig(figure="losses"))[1] == []
    few, note = drawn([_loss("text"), *(_exact(f"v{n}") for n in range(DRAWN + 1))], has_exact_match)
    assert [result.variant for result in few] == ["text", *(f"v{n}" for n in range(DRAWN))]
    assert note.startswith(f"the first {DRAWN} of {DRAWN + 1} variants")


def test_a_report_removes_what_a_former_one_left(tmp_path):
    wrong = [Score(0, 20, "error_token_first", 3, 10), Score(0, 20, "first_error_tenth_1", 3, 10)]
    folder = tmp_path / "report"
    first = write_report([_loss("text"), replace(_exact("a"), scores=[*_exact("a").scores, *wrong])], folder)
    assert [path.name for path in first.files] == [
        "accuracy.png", "losses.png", "losses.csv", "errors.png", "report.html", "scores.csv",
    ]  # fmt: skip
    assert sorted(first.files) == sorted(folder.iterdir())
    (folder / "mine.txt").write_text("")
    again = write_report([_exact("a")], folder)
    assert sorted([*again.files, folder / "mine.txt"]) == sorted(folder.iterdir())
    assert len(again.files) == 3
    other = tmp_path / "no report yet"
    other.mkdir()
    (other / "losses.csv").write_text("")
    write_report([_exact("a")], other)
    assert (other / "losses.csv").exists()


def test_all_files_of_a_report_are_named(tmp_path, capsys):
    source = tmp_path / "some.csv"
    source.write_text("variant,seed,length,metric,hits,samples\na,0,5,token_em_free,1,4\n")
    assert main(["report", str(source), "--out", str(tmp_path / "r"), "--json"]) == 0
    files = [str(tmp_path / "r" / name) for name in ("accuracy.png", "report.html", "scores.csv")]
    assert json.loads(capsys.readouterr().out)["files"] == files
    assert main(["report", str(source), "--out", str(tmp_path / "r")]) == 0
    assert [line[6:] for line in capsys.readouterr().out.splitlines()[-3:]] == files


def test_the_repr_of_a_report_is_short(tmp_path):
    report = write_report([_exact(f"v{n}") for n in range(20)], tmp_path)
    assert len(repr(report)) < 1000


def test_a_repeated_run_is_no_second_seed(tmp_path):
    execute_in(tmp_path / "one" / "seed-0", CONFIG)
    report = write_report(load_results([tmp_path / "one"])[0], tmp_path / "rep")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    for other, source in (("rep/scores.csv", report.csv), ("copy", tmp_path / "copy" / "seed-0")):
        results, problems = load_results([tmp_path / other, tmp_path / "one"])
        assert len(results) == 1
        assert isinstance(results[0], RunResult)
        (line,) = problems
        assert line.startswith("test, seed 0 of ")
        assert str(source) in line
    table = report.csv.read_text().splitlines()
    changed = next(n for n, line in enumerate(table) if "token_em_free" in line)
    cells = dict(zip(table[0].split(","), table[changed].split(","), strict=True))
    cells["hits"] = str((int(cells["hits"]) + 1) % 2)
    table[changed] = ",".join(cells.values())
    report.csv.write_text("\n".join(table))
    results, problems = load_results([report.csv, tmp_path / "one"])
    assert (len(results), problems) == (2, [])


def test_a_run_without_its_settings_is_listed(tmp_path):
    execute_in(tmp_path / "one" / "seed-0", CONFIG)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "seed-0" / "config.yaml").unlink()
    results, problems = load_results([tmp_path])
    assert len(results) == 1
    assert problems == [f"{tmp_path / 'two' / 'seed-0'} is left out: it has no config.yaml"]
    assert load_results([tmp_path, tmp_path / "two", tmp_path / "one"])[1] == problems


def test_a_table_of_text_scores_without_losses_has_a_figure(tmp_path):
    result = Result("x", "a", 0, [Score(0, n, "next_token", 5, 10) for n in (10, 20)])
    report = write_report([result], tmp_path)
    assert report.png.exists()
    assert sorted(report.files) == sorted(tmp_path.iterdir())
