"""Curves, tables and what a report calls things."""

import json
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
from longreach.errors import BadInput
from longreach.evaluation import Score, make_card
from longreach.reports import headline_groups, load_results, score_table, write_report
from longreach.reports.curves import DRAWN, Curve, Group, group
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
