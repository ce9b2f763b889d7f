"""`longreach dataset`: what other programs and the task `jsonl` read is what the task says."""

import json
import sys
from dataclasses import dataclass

import pytest
import torch
from catalogue import TASKS, label
from helpers import legal
from hypothesis import given, settings
from hypothesis import strategies as st

import longreach as lr
from longreach.cli.main import main
from longreach.evaluation.evaluate import Cell, draw_samples
from longreach.system.files import replacing, write_atomically
from longreach.tasks.base import NotStated
from longreach.training.stream import TrainingStream
from longreach.verbs import writing

KINDS = [
    lr.Merge(),  # two levels that grow
    lr.GraphWalk(num_names=60),  # given tokens, and a level of fixed size
    lr.Tape(),  # given tokens and one level
    lr.Sort(),  # no coupling
    lr.SparseParity(),  # answers of one token
    lr.Mixture(of=(lr.Copy(symbols=4), lr.Addition(operand_order="reversed"))),
    lr.VariableAssignment(num_names=60),
]


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def true_sample(task, length, samples, seed=0):
    numbers = torch.arange(samples)
    draws = lr.stream(seed, f"dataset/{length}", numbers)
    return task.sample(torch.full_like(numbers, length), draws, length)


def check_row(task, row, sample, number, form):
    """Compare a row with the sample that it was made of."""
    size, prompt = int(sample.num_tokens[number]), int(sample.prompt_tokens[number])
    assert row["tokens"] == sample.tokens[number, :size].tolist()
    words = task.words(row["tokens"])
    assert row["prompt"].split(" ") == words[:prompt]
    assert row["answer"].split(" ") == words[prompt:]
    assert row["length"] == int(sample.length[number])
    assert row["answer_mask"] == sample.answer[number, :size].int().tolist()
    assert ("given_mask" in row) == task.has_given
    if task.has_given:
        assert row["given_mask"] == sample.given[number, :size].int().tolist()
    levels = [f"ids_{level.name.replace(' ', '_')}" for level in task.coupling_levels]
    assert [name for name in row if name.startswith("ids_")] == levels
    assert ("ids" in row) == bool(levels)
    if levels:
        assert [row[name] for name in levels] == task.coupling(sample, form)[number, :, :size].tolist()
        by_word = [one if isinstance(one, list) else [one] for one in (*row["ids"][0], *row["ids"][1])]
        assert len(row["ids"][0]) == prompt
        assert by_word == task.coupling(sample, "published")[number, :, :size].T.tolist()
    try:
        needs = task.depends_on(sample)[number]
    except NotStated:
        assert "dependencies" not in row
    else:
        assert row["dependencies"] == [needs[i].nonzero()[:, 0].tolist() for i in range(prompt, size)]


@settings(max_examples=25)
@given(task=st.sampled_from(TASKS), form=st.sampled_from(["aligned", "published"]), seed=st.integers(0, 9))
def test_rows_are_what_the_task_says(tmp_path_factory, task, form, seed):
    path = tmp_path_factory.mktemp("dataset") / "rows.jsonl"
    (length,) = legal(task, [8])
    written = lr.dataset(task, length, path, samples=3, form=form, seed=seed)
    rows = rows_of(path)
    assert len(rows) == written.samples == 3
    assert {tuple(row) for row in rows} == {tuple(written.columns)}
    sample = true_sample(task, length, 3, seed)
    for number, row in enumerate(rows):
        check_row(task, row, sample, number, form)


@pytest.mark.parametrize("task", KINDS, ids=label)
def test_parquet_and_a_folder_hold_the_rows_of_json_lines(task, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    lengths = sorted(set(legal(task, [6, 8])))
    lr.dataset(task, lengths, tmp_path / "rows.jsonl", samples=3)
    lr.dataset(task, lengths, tmp_path / "rows.parquet", samples=3)
    lr.dataset(task, lengths, tmp_path / "folder", samples=3)
    rows = rows_of(tmp_path / "rows.jsonl")
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows
    assert [row for n in lengths for row in rows_of(tmp_path / "folder" / f"length-{n}.jsonl")] == rows
    notes = [tmp_path / "rows.parquet.vocabulary.json", tmp_path / "folder" / "vocabulary.json"]
    for note in (json.loads(path.read_text()) for path in notes):
        assert note["vocabulary"] == list(task.vocabulary)
        assert [level["name"] for level in note["levels"]] == [level.name for level in task.coupling_levels]
        assert lr.show(note["task"], lengths[0]) == lr.show(task, lengths[0])


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("task", KINDS, ids=label)
def test_the_task_jsonl_reads_the_file(task, ending, tmp_path):
    path = tmp_path / f"rows.{ending}"
    (length,) = legal(task, [12])
    lr.dataset(task, length, path, samples=20)
    read = lr.Jsonl(path=str(path), tokens="word", held_out_share=1e-9)
    count = read.num_rows(length)
    numbers = torch.arange(count)
    found = read.sample(torch.full_like(numbers, length), lr.Draws(numbers), length)
    true = true_sample(task, length, 20)
    expected = {}
    for number in range(20):
        size = int(true.num_tokens[number])
        ids = task.coupling(true, "published")[number, :, :size].tolist() if task.coupling_levels else []
        # ranks without gaps: `jsonl` knows no levels of fixed size
        ranks = [[sorted({0, *level}).index(one) for one in level] for level in ids]
        words = task.words(true.tokens[number, :size].tolist())
        expected[tuple(words)] = (int(true.prompt_tokens[number]), ranks)
    assert count == len(expected)
    coupled = read.coupling(found, "published") if task.coupling_levels else None
    for number in range(count):
        size = int(found.num_tokens[number]) - 1
        words = read.words(found.tokens[number, : size + 1].tolist())
        assert words[-1] == "<end>"
        ids = [] if coupled is None else coupled[number, :, :size].tolist()
        assert expected.pop(tuple(words[:-1])) == (int(found.prompt_tokens[number]), ids)


def test_a_second_call_writes_equal_bytes_in_chunks_of_any_size(tmp_path, monkeypatch):
    for name in ("a.jsonl", "a.parquet"):
        lr.dataset("merge", "3..5", tmp_path / name, samples=12)
        lr.dataset("merge", "3..5", tmp_path / f"again.{name}", samples=12)
        assert (tmp_path / name).read_bytes() == (tmp_path / f"again.{name}").read_bytes()
    monkeypatch.setattr(writing, "_MOST_ROWS", 7)
    lr.dataset("merge", "3..5", tmp_path / "few.jsonl", samples=12)
    assert (tmp_path / "few.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    lr.dataset("merge", "5", tmp_path / "one.jsonl", samples=9)
    assert rows_of(tmp_path / "one.jsonl") == rows_of(tmp_path / "a.jsonl")[24:33]
    lr.dataset("merge", "3..5", tmp_path / "other.jsonl", samples=12, seed=1)
    assert rows_of(tmp_path / "other.jsonl") != rows_of(tmp_path / "a.jsonl")


def test_samples_are_not_those_that_a_run_trains_or_tests_on(tmp_path):
    task, config = lr.Copy(), lr.EvalConfig(samples=200, free_samples=0)
    lr.dataset(task, 20, tmp_path / "rows.jsonl", samples=200)
    rows = {tuple(row["tokens"]) for row in rows_of(tmp_path / "rows.jsonl")}
    trained = TrainingStream(task, lr.Sequential(), (20,), 200, 0, "cpu").batch(0).sample.tokens
    tested = draw_samples(lr.Sequential(), Cell(task, 20, {}), config, 0, 200, "cpu")[0].tokens
    assert len(rows) == 200
    assert rows.isdisjoint(map(tuple, trained.tolist()))
    assert rows.isdisjoint(map(tuple, tested.tolist()))


def test_hugging_face_reads_a_split_for_each_length(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    lr.dataset("copy", "4..6", tmp_path / "copy", samples=5)
    data = datasets.load_dataset(str(tmp_path / "copy"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(part) for name, part in data.items()} == {"length_4": 5, "length_5": 5, "length_6": 5}
    rows = rows_of(tmp_path / "copy" / "length-5.jsonl")
    assert list(data["length_5"]) == rows
    tokens = data["length_5"].rename_column("tokens", "input_ids")
    coupled = lr.CoupledDataset(tokens, ids="ids_place", relabel="none")
    coupled.set_epoch(0)
    assert coupled[0]["position_ids"].tolist() == rows[0]["ids_place"]


def test_flags_and_lengths(tmp_path, capsys):
    out = tmp_path / "a.jsonl"
    arguments = ["dataset", "sparse_parity", "--lengths", "3..8", "--samples", "4", "--task.k", "2..2", "--json"]
    assert main([*arguments, "--no-dependencies", "--form", "published", "--out", str(out)]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["lengths"] == [4, 6, 8]  # it has even lengths only
    assert written["samples"] == 12
    assert "dependencies" not in written["columns"]
    note = json.loads((tmp_path / "a.jsonl.vocabulary.json").read_text())
    assert note["task"] == {"name": "sparse_parity", "k": "2", "label": "parity", "begin": False}
    assert note["form"] == "published"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.vocabulary.json"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "copi"}, "did you mean copy"),
        ({"task": "jsonl"}, "jsonl reads its samples from files"),
        ({"task": "sparse_parity", "lengths": "3"}, "must be even"),
        ({"task": "sparse_parity", "lengths": "3..3"}, "must be even"),
        ({"lengths": "5..2"}, "lengths: a range must not fall"),
        ({"lengths": "0..2"}, "lengths: lengths must be whole numbers from 1"),
        ({"lengths": "x"}, "lengths: expected lengths such as 40"),
        ({"lengths": "1..10000000"}, "lengths: lengths are at most"),
        ({"lengths": 10**9}, "needs about .* of memory"),
        ({"lengths": 3000}, "of up to 4096 tokens, and those of length 3000 may have 6003"),
        ({"lengths": 10**6}, "of up to 4096 tokens"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"form": "both"}, "form must be one of published, aligned, got 'both'"),
        ({"out": "rows.csv"}, "must end in .jsonl or .parquet, or be a folder's"),
        ({"out": "none/rows.jsonl"}, "there is no folder"),
        ({"out": "there.jsonl"}, "there.jsonl exists already"),
        ({"out": "noted.jsonl"}, "noted.jsonl.vocabulary.json exists already"),
        ({"out": "full"}, "full exists already"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(changes, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    for name in ("there.jsonl", "noted.jsonl.vocabulary.json", "full/file"):
        (tmp_path / name).write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(lr.BadInput, match=message) as error:
        lr.dataset(**{"task": "copy", "lengths": "2..4", "out": "rows.jsonl", **changes})
    assert len(error.value.lines) == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "there.jsonl").read_text() == "kept"


def test_levels_whose_columns_would_be_one_are_refused(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Two(lr.Example):
        levels = ("a place", "a_place")
        alphabet = ("x",)

        def example(self, rng, length):
            return ["x"] * length, ["x"], ([(1, 1)] * length, [(1, 1)])

    with pytest.raises(lr.BadInput, match="levels need different names, got ids_a_place, ids_a_place"):
        lr.dataset(Two(), 3, tmp_path / "rows.jsonl", samples=2)


def test_a_failure_to_write_names_its_own_file(tmp_path):
    with pytest.raises(FileNotFoundError) as error, replacing(tmp_path / "rows.jsonl"):
        write_atomically(tmp_path / "none" / "note.json", b"")
    assert error.value.filename == str(tmp_path / "none" / "note.json")
    with pytest.raises(OSError, match="No space") as error, replacing(tmp_path / "rows.jsonl"):
        raise OSError(28, "No space left on device")
    assert error.value.filename == str(tmp_path / "rows.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows"])
def test_an_interrupted_call_leaves_nothing(name, tmp_path, monkeypatch):
    draw = writing._draw

    def interrupted(task, length, *others):
        if length == 4:
            raise KeyboardInterrupt
        return draw(task, length, *others)

    monkeypatch.setattr(writing, "_draw", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lr.dataset("copy", "2..4", tmp_path / name, samples=3)
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_pyarrow_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(lr.BadInput, match="needs pyarrow: pip install"):
        lr.dataset("copy", 4, tmp_path / "rows.parquet", samples=2)
    assert list(tmp_path.iterdir()) == []
