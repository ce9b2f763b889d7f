"""Results from run folders and from files of scores, as reports read them."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_runs import make_runs

from longreach.errors import BadInput
from longreach.evaluation import Score, to_csv, to_json
from longreach.live import SweepRecord, write_sweep
from longreach.reports import load_results
from longreach.reports.explorer import as_script, explorer_data, swept
from longreach.reports.load import variant_order
from longreach.runs import variant_names

RESULTS = Path(__file__).parents[2] / "results"
CARD = {
    "task": "copy",
    "trained_lengths": "2..20",
    "trained_tokens": "4..44",
    "trained_ids": "0..44",
    "trained_id_distance": 44,
    "ids_supplied_by": "counting tokens",
    "length_known": "no",
    "stops": "at the model's own stop token",
    "decoding": "greedy",
    "selection": "the last checkpoint",
    "id_coverage": [1],
}
SCORES = [Score(seed, length, "token_em_free", length - seed, 100) for seed in (0, 1) for length in (10, 20, 40)]


def _score_files() -> list[Path]:
    """Return the committed files with scores; `gpu_tests.json` has none."""
    return sorted(path for path in RESULTS.glob("*.[cj]s*") if path.stem != "gpu_tests")


@pytest.mark.parametrize("path", _score_files(), ids=lambda path: path.name)
def test_every_committed_file_of_scores_is_read_whole(path):
    results, problems = load_results([path])
    assert problems == []
    found = sum(len(result.scores) for result in results)
    measured = sum(len(result.measured.entries) for result in results if result.measured is not None)
    assert found + measured == _rows_with_samples(path)
    cells = explorer_data(results, path.stem, [])["cells"]
    assert len(cells["hits"]) == found
    assert all(0 <= hits <= samples for hits, samples in zip(cells["hits"], cells["samples"], strict=True))


def _rows_with_samples(path: Path) -> int:
    if path.suffix == ".csv":
        return sum(bool(row["samples"]) for row in csv.DictReader(io.StringIO(path.read_text())))
    return path.read_text().count('"samples"')


def test_a_table_of_scores_comes_back_as_it_was_written(tmp_path):
    labels = [{"variant": "far", "trained_from": "2", "trained_to": "20"}] * len(SCORES)
    scores = [Score(s.seed, s.length, s.metric, s.hits, s.samples, {"k": "4"}) for s in SCORES]
    (tmp_path / "a.csv").write_text(to_csv(scores, labels))
    results, _ = load_results([tmp_path / "a.csv"])
    assert [(r.variant, r.seed, r.trained_lengths) for r in results] == [("far", 0, (2, 20)), ("far", 1, (2, 20))]
    assert [score for result in results for score in result.scores] == scores


def test_a_card_and_a_command_belong_to_the_rows_below_them(tmp_path):
    parts = [
        {"command": "first", "card": CARD, "scores": to_json(SCORES)},
        {"command": "second", "scores": [{**row, "variant": "x"} for row in to_json(SCORES[:1])]},
        {"scores": to_json(SCORES[:1])},
    ]
    path = tmp_path / "some.json"
    path.write_text(json.dumps({"series": parts}))
    results, _ = load_results([path])
    assert [(r.variant, r.command, r.trained_to) for r in results] == [
        ("some", "first", 20),
        ("some", "first", 20),
        ("x", "second", None),
        ("some (part 3)", "", None),
    ]


LOSS_HEAD = "encoding,window,seed,by,size,nats,low,high,tokens,documents,commit\n"


def test_losses_that_differ_in_another_column_are_variants_of_their_own(tmp_path):
    path = tmp_path / "some.csv"
    rows = [f"{name},{window},0,context,{n},2.5,,,9,2,c" for name in "ab" for window in (8, 16) for n in (64, 256)]
    path.write_text(LOSS_HEAD + "\n".join(rows))
    results, _ = load_results([path])
    assert [r.variant for r in results] == [f"{name}/window={window}" for name in "ab" for window in (8, 16)]
    assert [[loss.size for loss in result.losses] for result in results] == [[64, 256]] * 4
    committed, _ = load_results([RESULTS / "text" / "smollm2_losses.csv"])
    assert len({result.variant for result in committed}) == 6
    sizes = [[(loss.by, loss.size) for loss in result.losses] for result in committed]
    assert all(len(set(own)) == len(own) for own in sizes)


def test_a_repeated_loss_is_refused_with_its_row(tmp_path):
    path = tmp_path / "some.csv"
    row = "a,8,0,context,64,2.5,,,9,2,"
    path.write_text(f"{LOSS_HEAD}a,8,0,context,16,2.6,,,9,2,c\n{row}c\n{row}d\n")
    assert [result.variant for result in load_results([path])[0]] == ["c", "d"]
    path.write_text(f"{LOSS_HEAD}a,8,0,context,16,2.6,,,9,2,c\n{row}c\n{row}c\n")
    with pytest.raises(BadInput, match=r"some.csv is damaged: row 3 repeats the loss of seed 0 by context at 64"):
        load_results([path])


def test_all_commands_of_a_curve_are_kept(tmp_path):
    rows = [{**row, "variant": "x", "command": f"run {row['length'] > 10}"} for row in to_json(SCORES[:3])]
    path = tmp_path / "some.json"
    path.write_text(json.dumps(rows))
    assert [result.command for result in load_results([path])[0]] == ["run False ; run True"]
    headline, _ = load_results([RESULTS / "headline.json"])
    assert sum(" ; " in result.command for result in headline) == 30


@pytest.mark.parametrize("name", ["gpu_tests.json", "text/self_extend.csv"])
def test_a_file_of_something_else_is_not_called_damaged(name):
    with pytest.raises(BadInput, match=f"{name} has no scores, losses or measures") as caught:
        load_results([RESULTS / name])
    assert "damaged" not in str(caught.value)


def test_rates_without_hits_must_be_counts(tmp_path):
    path = tmp_path / "a.json"
    row = {"length": 5, "metric": "token_em_free", "samples": 3, "exact_match": 2 / 3}
    path.write_text(json.dumps([row]))
    assert load_results([path])[0][0].scores[0].hits == 2
    path.write_text(json.dumps([{**row, "exact_match": 0.5}]))
    with pytest.raises(BadInput, match="no whole number of 3 samples"):
        load_results([path])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "variant,seed\na,1\n", "no rows with length"),
        ("a.csv", "length,metric,hits,samples\n5,x,9,4\n", "9 hits of 4 samples"),
        ("a.csv", "length,metric,hits,samples\n5,x,1\n", "is damaged: a row has fewer cells"),
        ("a.csv", "length,metric,hits,samples\n5,x,1,4,5\n", "more cells than the header"),
        ("a.csv", "length,metric,hits,samples\n5.5,x,1,4\n", "not a whole number"),
        ("a.json", "{", "is damaged"),
        ("a.json", "[]", "no rows with length"),
        ("a.json", '{"card": {"task": 3}, "scores": []}', "is damaged"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(BadInput, match=words) as caught:
        load_results([path])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def _with_cards(root: Path, variants: int, seeds: int = 1) -> list[Path]:
    folders = make_runs(root, variants * seeds, seeds=seeds)
    for folder in folders:
        (folder / "card.json").write_text(json.dumps(CARD))
    return folders


def test_a_damaged_run_is_listed_and_stops_nothing(tmp_path):
    folders = _with_cards(tmp_path, 4)
    (folders[0] / "scores.json").write_text("{")
    (folders[1] / "metrics.jsonl").write_text("no metrics\n")
    (folders[2] / "scores.json").unlink()
    results, problems = load_results([tmp_path])
    assert [result.variant for result in results] == ["v1", "v3"]
    assert f"{folders[0]} is left out" in problems[0]
    assert f"{folders[1]} has no training curve: " in problems[1]
    assert problems[2] == f"{folders[2]} is not finished"
    data = explorer_data(results, "title", problems)
    assert data["problems"] == problems
    assert data["training"][0] is None
    assert data["training"][1] == {"step": [1000, 2000], "loss": [0.5, 0.1]}


def test_if_all_runs_are_damaged_the_line_says_why(tmp_path):
    (folder,) = _with_cards(tmp_path, 1)
    (folder / "scores.json").write_text("{")
    with pytest.raises(BadInput, match=r"no finished run in .*: .*scores.json is damaged"):
        load_results([tmp_path])


def test_variants_stand_in_the_order_of_their_recipe(tmp_path):
    folders = _with_cards(tmp_path, 3)
    for folder in folders:
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "variants": ["v2", "absent", "v0"]}))
    results, _ = load_results([tmp_path])
    assert [result.variant for result in results] == ["v2", "v0", "v1"]
    assert variant_order(results) == ["v2", "absent", "v0", "v1"]
    # a shipped recipe tells the order of runs that did not record it
    for folder, variant in zip(folders, ("aligned", "counting", "published"), strict=True):
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "variants": [], "recipe": "demo", "variant": variant}))
    assert [result.variant for result in load_results([tmp_path])[0]] == ["counting", "published", "aligned"]


def test_settings_in_which_runs_differ_are_fields(tmp_path):
    _with_cards(tmp_path, 2)
    data = explorer_data(load_results([tmp_path])[0], "title", [])
    assert [run["fields"] for run in data["runs"]] == [
        {"model.width": "64", "train.optimizer.lr": "0.0001"},
        {"model.width": "128", "train.optimizer.lr": "0.0002"},
    ]


@given(st.text())
def test_no_text_ends_the_element_of_the_data(text):
    script = as_script({"name": text})
    assert not {"<", ">", "&"} & set(script)
    assert json.loads(script) == {"name": text}


def test_a_setting_with_as_many_values_as_variants_is_a_field(tmp_path):
    make_runs(tmp_path, 250, seeds=1, lengths=(5,))
    for folder in tmp_path.glob("v*/seed-0"):
        (folder / "card.json").write_text(json.dumps(CARD))
    results, _ = load_results([tmp_path])
    assert len(set(swept(results)["train.optimizer.lr"])) == 250


def test_variants_of_a_sweep_stand_in_its_order(tmp_path):
    make_runs(tmp_path / "out" / "sweep", 3, seeds=1, lengths=(5,))
    for folder in tmp_path.glob("out/sweep/v*/seed-0"):
        (folder / "card.json").write_text(json.dumps(CARD))
    names = ("v2", "later", "v0", "v1")
    write_sweep(tmp_path / "out", SweepRecord("title", 1, tuple(f"sweep/{name}/seed-0" for name in names)))
    results, _ = load_results([tmp_path / "out"])
    assert [result.variant for result in results] == ["v2", "v0", "v1"]
    assert variant_order(results) == list(names)
    (tmp_path / "out" / "sweep.json").write_text("{")
    assert [result.variant for result in load_results([tmp_path / "out"])[0]] == ["v0", "v1", "v2"]


def test_a_file_named_like_a_recipe_has_its_order():
    results, _ = load_results([RESULTS / "variable_assignment.csv"])
    assert variant_order(results) == variant_names("variable_assignment")
    assert list(dict.fromkeys(result.variant for result in results)) == variant_names("variable_assignment")
