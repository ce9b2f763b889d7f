"""The table of many runs says what their folders say, also after they changed."""

import json
import re
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import TINY, execute_in
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from synthetic_runs import LENGTHS, METRICS, make_runs, write_scores

from longreach.api import (
    Coupled,
    EvalConfig,
    ExecutionConfig,
    Lengths,
    Observer,
    ParityScratchpad,
    RunConfig,
    Span,
    SparseParity,
    TrainConfig,
)
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.reports import load_results
from longreach.results import Selection, cells, export, load_runs, parse_condition, pivot, varied
from longreach.results.export import escape_latex, escape_markdown, to_latex, to_markdown
from longreach.results.index import NAME
from longreach.runs import find_runs

TRAIN = TrainConfig(lengths=Span(4, 8), steps=4, batch_size=4)
EXECUTION = ExecutionConfig(log_every=2)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Two tiny runs of different tasks, one tested under several k, and one that was stopped."""
    root = tmp_path_factory.mktemp("real")
    tests = EvalConfig(lengths=Lengths((4, 8)), samples=8, free_samples=4)
    parity = RunConfig(
        task=ParityScratchpad(), ids=Coupled(max_id=60), model=TINY, train=TRAIN, evaluate=tests, execution=EXECUTION
    )
    sparse = EvalConfig(lengths=Lengths((4, 8)), axes={"k": [1, 2]}, samples=8, free_samples=4)
    execute_in(root / "parity" / "seed-0", parity, seed=3)
    task = SparseParity(k=Span(1, 2))
    execute_in(root / "sparse", RunConfig(task=task, model=TINY, train=TRAIN, evaluate=sparse, execution=EXECUTION))
    calls = iter(range(100))
    execute_in(root / "stopped", parity, observer=Observer(should_stop=lambda: next(calls) == 2))
    return root


def _reads(root) -> int:
    """How many runs a call reads anew."""
    read = []

    def phase(title, total):
        read.append(total)
        return lambda done, note: None

    load_runs([root], phase)
    return sum(read)


def test_the_table_says_what_a_report_reads(real):
    runs = load_runs([real])
    assert runs["run"].to_pylist() == [str(folder.path) for folder in find_runs(real)]
    table = Selection(runs).cells.to_pylist()
    for result in load_results([real])[0]:
        mine = [row for row in table if row["run"] == str(result.folder.path)]
        assert len(mine) == len(result.scores)
        for row, score in zip(mine, result.scores, strict=True):
            assert (row["seed"], row["recipe"], row["state"]) == (score.seed, result.info.recipe, "finished")
            assert (row["length"], row["metric"], row["hits"]) == (score.length, score.metric, score.hits)
            assert (row["samples"], row["rate"]) == (score.samples, score.rate)
            assert {"k": row["k"]} == {"k": int(score.overrides["k"]) if score.overrides else None}
            assert row["task"] == result.folder.config().task.name
    (stopped,) = (row for row in table if row["state"] == "unfinished")
    assert (stopped["step"], stopped["metric"], stopped["rate"]) == (2, None, None)
    assert varied(runs)[:3] == ["task", "ids", "ids.max_id"]


def test_the_files_of_a_tracker_are_no_runs(tmp_path):
    (folder,) = make_runs(tmp_path / "wandb", 1)  # a folder of runs may be called so
    (folder / "wandb" / "run-1" / "files").mkdir(parents=True)
    (folder / "wandb" / "run-1" / "files" / "config.yaml").write_text("_wandb: {}\n")
    assert [run.path for run in find_runs(tmp_path)] == [folder]
    assert load_runs([tmp_path])["run"].to_pylist() == [str(folder)]


def test_only_what_changed_is_read_again(tmp_path):
    folders = make_runs(tmp_path, 300)
    assert _reads(tmp_path) == 300
    assert _reads(tmp_path) == 0
    write_scores(folders[7], 50, 2)
    shutil.rmtree(folders[8])
    (added,) = make_runs(tmp_path / "more", 1)
    assert _reads(tmp_path) == 2
    table = cells(load_runs([tmp_path]))
    assert len(table) == 300 * len(LENGTHS) * len(METRICS)
    changed = parse_condition(f"run={folders[7]}").keep(table)
    assert changed["hits"].to_pylist()[0] == (350 + 6 + 5) % 101
    assert str(folders[8]) not in table["run"].to_pylist()
    assert str(added) in table["run"].to_pylist()


def test_a_run_that_goes_on_and_ends_is_noticed(tmp_path):
    folder, *_ = make_runs(tmp_path, 3)
    (folder / "scores.json").unlink()
    state = lambda: load_runs([tmp_path]).select(["state", "step", "problem"]).to_pylist()[0]  # noqa: E731
    assert state() == {"state": "unfinished", "step": 2000, "problem": ""}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2050, "loss": 0.1}\n{"step": 2')  # a line that a crash has cut
    assert state()["step"] == 2050
    (folder / "attempts.json").write_text('{"failures": 1, "step": 0, "reason": "the loss became nan at step 2051"}')
    assert state() == {"state": "failed", "step": 2050, "problem": "the loss became nan at step 2051"}
    write_scores(folder, 0, 0)
    assert state()["state"] == "finished"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("scores.json", "["),
        ("scores.json", '[{"length": 3}]'),
        ("scores.json", '[{"overrides": {}, "length": "x", "metric": "m", "hits": 1, "samples": 2}]'),
        ("scores.json", '{"length": 3}'),
        ("scores.json", f'[{{"overrides": {{}}, "length": {10**30}, "metric": "m", "hits": 1, "samples": 2}}]'),
        ("run.json", "{}"),
        ("config.yaml", "task: [\n"),
    ],
)
def test_a_damaged_run_is_named_and_breaks_no_other(tmp_path, file, content, capsys):
    folders = make_runs(tmp_path, 4)
    (folders[2] / file).write_text(content)
    states = load_runs([tmp_path])["state"].to_pylist()
    assert states == ["finished", "finished", "damaged", "finished"]
    assert main(["results", str(tmp_path)]) == 0
    assert str(folders[2] / file) in capsys.readouterr().err
    assert len(cells(load_runs([tmp_path]))) == 3 * len(LENGTHS) * len(METRICS) + 1


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(path.read_bytes()[:200]), lambda path: path.unlink()])
def test_an_index_that_is_damaged_or_gone_is_made_anew(tmp_path, spoil):
    make_runs(tmp_path, 5)
    before = load_runs([tmp_path])
    spoil(tmp_path / NAME)
    assert _reads(tmp_path) == 5
    assert load_runs([tmp_path]) == before


def test_an_index_of_another_version_is_made_anew(tmp_path):
    make_runs(tmp_path, 5)
    load_runs([tmp_path])
    index = pq.read_table(tmp_path / NAME)
    pq.write_table(index.replace_schema_metadata({"longreach": "0"}), tmp_path / NAME)
    assert _reads(tmp_path) == 5


def test_a_process_that_saves_an_older_view_does_no_harm(tmp_path):
    folders = make_runs(tmp_path, 6)
    load_runs([tmp_path])
    older = (tmp_path / NAME).read_bytes()
    write_scores(folders[0], 90, 0)
    fresh = load_runs([tmp_path])
    (tmp_path / NAME).write_bytes(older)
    assert load_runs([tmp_path]) == fresh


def test_what_was_read_before_an_interruption_is_kept(tmp_path):
    make_runs(tmp_path, 6)

    def phase(title, total):
        def report(done, note):
            if done == 4:
                raise KeyboardInterrupt

        return report

    with pytest.raises(KeyboardInterrupt):
        load_runs([tmp_path], phase)
    assert _reads(tmp_path) == 2


def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path):
    make_runs(tmp_path, 2)
    (tmp_path / NAME).mkdir()  # stands where the index should be written
    said = []
    assert len(load_runs([tmp_path], say=said.append)) == 2
    assert "cannot be written" in said[-1]


def test_a_run_is_counted_once_and_called_as_its_path_was_given(tmp_path, monkeypatch):
    make_runs(tmp_path, 3)
    assert len(load_runs([tmp_path, tmp_path / "v0", tmp_path / "v0" / "seed-1"])) == 3
    monkeypatch.chdir(tmp_path)
    assert load_runs([Path()])["run"].to_pylist() == ["v0/seed-0", "v0/seed-1", "v0/seed-2"]
    assert load_runs([Path("v0"), tmp_path])["run"].to_pylist() == ["v0/seed-0", "v0/seed-1", "v0/seed-2"]
    assert load_runs([Path("v0/seed-1")])["run"].to_pylist() == ["v0/seed-1"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no run in"):
        load_runs([tmp_path / "empty"])
    with pytest.raises(BadInput, match="there is no"):
        load_runs([tmp_path / "nowhere"])


def test_conditions():
    table = pa.table({"n": [1, 2, None], "name": ["a", "b", None], "on": [True, False, None], "x.y": [0.5, 1.5, 2.5]})
    keep = lambda text: parse_condition(text).keep(table)["n"].to_pylist()  # noqa: E731
    assert keep("n>=2") == keep("n > 1") == keep("n!=1") == keep("name!=a") == keep("on=false") == [2]
    assert keep("n<2") == keep("n<=1") == keep("n=1") == keep("name = a") == keep("on=true") == keep("x.y<1") == [1]
    for text, complaint in [
        ("n=two", "n is a number, got 'two'"),
        ("name>a", "only = and != compare it"),
        ("on=yes", "on is true or false, got 'yes'"),
        ("n==2", "'n==2' is no condition"),
        ("n", "'n' is no condition"),
    ]:
        with pytest.raises(BadInput, match=complaint):
            keep(text)


def test_a_pivot_summarises_over_runs():
    rows = [("a", 0, 10, 0.5), ("a", 1, 10, 0.7), ("a", 2, 10, 0.9), ("a", 0, 20, 0.1), ("b", 0, 10, 1.0)]
    table = pa.table(
        {
            "run": [f"{variant}{seed}" for variant, seed, _, _ in rows],
            "variant": [row[0] for row in rows],
            "length": [row[2] for row in rows],
            "rate": [row[3] for row in rows],
            "metric": ["m"] * 5,
        }
    )
    assert pivot(table, ["variant"], "length", "m").to_pylist() == [
        {"variant": "a", "runs": 3, "10": 0.7, "20": 0.1},
        {"variant": "b", "runs": 1, "10": 1.0, "20": None},
    ]
    assert pivot(table, ["variant"], "length", "m", "worst")["10"].to_pylist() == [0.5, 1.0]
    ordered = pivot(table, ["variant"], "length", "m", variants=["c", "b", "a"])
    assert ordered["variant"].to_pylist() == ["b", "a"]


def test_variants_of_a_pivot_stand_in_the_order_of_their_recipe(tmp_path, capsys):
    make_runs(tmp_path / "runs", 2, seeds=1)
    for folder in (tmp_path / "runs").glob("v*/seed-0"):
        record = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**record, "variants": ["v1", "spare", "v0"]}))
    assert main(["results", str(tmp_path / "runs"), "--pivot", "length", "--json"]) == 0
    assert [row["variant"] for row in json.loads(capsys.readouterr().out)] == ["v1", "v0"]


def test_a_pivot_never_mixes_what_one_run_was_asked(real):
    table = Selection(load_runs([real])).cells
    with pytest.raises(BadInput, match="sparse has several rates in one place: tell them apart by k, among the rows"):
        pivot(table, ["task"], "length", "token_em_free")
    by_k = pivot(table, ["task", "k"], "length", "token_em_free")
    assert by_k["k"].to_pylist() == [None, 1, 2]


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_every_form_holds_the_whole_table(tmp_path, form):
    make_runs(tmp_path / "runs", 3)
    table = Selection(load_runs([tmp_path / "runs"])).cells
    path = tmp_path / f"out.{form}"
    export(table, path)
    if form == "parquet":
        assert pq.read_table(path) == table
    elif form == "json":
        assert json.loads(path.read_text()) == table.to_pylist()
    else:
        assert path.read_text().count("\n") == 1 + len(table)


@given(st.text(max_size=30))
def test_no_text_of_a_cell_is_a_command_of_latex(text):
    escaped = escape_latex(text)
    assert not re.search("[\n\r]|--", escaped)
    bare = re.sub(r"\\(text(asciitilde|asciicircum|backslash|less|greater|bar|asciigrave)\{\}|[&%_#${}])", "", escaped)
    assert not re.search(r"[&%_#$~^\\<>|`]", bare)
    assert not bare.startswith(("[", "*"))  # which a line break before them would read
    assert re.sub(r"\{([\[*]?)\}", r"\1", bare).count("{") == 0
    assert escape_latex("a_b") == r"a\_b"
    assert escape_latex("50% & \\x{~}") == r"50\% \& \textbackslash{}x\{\textasciitilde{}\}"


@given(st.text(max_size=30))
def test_no_text_of_a_cell_is_markup_of_markdown(text):
    escaped = escape_markdown(text)
    assert not re.search("[<>\n\r]", escaped)
    assert not re.search(r"(?<!\\)[|`*_\[$~]", escaped.replace("\\\\", ""))
    assert escape_markdown("a|b <c> `d`") == r"a\|b &lt;c&gt; \`d\`"


TYPESET = pa.table(
    {
        "variant": ["a_1", "50% & more", None],
        "runs": [3, 12, 1],
        "empty": pa.nulls(3, pa.string()),
        "10": [1.0, 0.12345, None],
        "lr": [3e-4, 1e-5, 1.0],
    }
)


def test_a_latex_table_has_rules_alignment_and_three_digits():
    assert to_latex(TYPESET, "longreach results --where 'a\nb'").splitlines() == [
        r"% needs \usepackage{booktabs}",
        "% longreach results --where 'a",
        "% b'",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"variant & runs & 10 & lr \\",
        r"\midrule",
        r"a\_1 & 3 & 1.000 & 0.0003 \\",
        r"50\% \& more & 12 & 0.123 & 1e-05 \\",
        r" & 1 &  & 1 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_a_markdown_table_has_alignment_and_three_digits():
    assert to_markdown(TYPESET, "longreach results --where 'a-->b'").splitlines() == [
        "<!-- longreach results --where 'a-- >b' -->",
        "",
        "| variant | runs | 10 | lr |",
        "|---|---:|---:|---:|",
        r"| a\_1 | 3 | 1.000 | 0.0003 |",
        r"| 50% &amp; more | 12 | 0.123 | 1e-05 |",
        r"|  | 1 |  | 1 |",
    ]


@pytest.mark.parametrize("form", ["tex", "md"])
def test_pivots_and_lists_are_typeset(tmp_path, capsys, form):
    make_runs(tmp_path / "runs", 2, seeds=1)
    path = tmp_path / f"out.{form}"
    assert main(["results", str(tmp_path / "runs"), "--out", str(path)]) == 0
    assert capsys.readouterr().err.count("--pivot length makes a table to print") == 1
    for arguments in (["--out", str(tmp_path / "x.csv")], ["--out", str(path), "--pivot", "length"]):
        assert main(["results", str(tmp_path / "runs"), *arguments]) == 0
        assert "--pivot" not in capsys.readouterr().err
    for arguments in ([], ["--pivot", "length"], ["--pivot", "length", "--rows", "variant,seed", "--where", "seed<2"]):
        assert main(["results", str(tmp_path / "runs"), *arguments, "--out", str(path)]) == 0
        assert "token" in path.read_text() or "80" in path.read_text()
        assert f"longreach results {tmp_path / 'runs'}" in path.read_text()
        assert " ".join(arguments[:2]) in path.read_text()
    with pytest.raises(BadInput, match="5,001 rows are too many to typeset, at most 5,000"):
        export(pa.table({"x": range(5001)}), path)


def test_the_command_lists_filters_pivots_and_writes(tmp_path, capsys):
    make_runs(tmp_path / "runs", 40)
    root = str(tmp_path / "runs")

    def call(*arguments):
        assert main(["results", root, *arguments]) == 0
        return capsys.readouterr()

    listed = call("--limit", "3")
    assert len(listed.out.splitlines()) == 4
    assert "40 runs: 40 finished" in listed.err
    assert "37 more lines: --limit 0" in listed.err
    assert len(json.loads(call("--where", "model.width=64", "--json").out)) == 10
    assert len(json.loads(call("--where", "length>=100", "--json").out)) == 0
    assert len(json.loads(call("--where", "hits=0", "--where", "metric=token_em_tf", "--json").out)) > 0
    pivoted = json.loads(call("--pivot", "length", "--rows", "variant,seed", "--where", "seed<2", "--json").out)
    assert len(pivoted) == 16
    assert pivoted[0] == {"variant": "v0", "seed": 0, "runs": 1, "5": 0.05, "10": 0.1, "20": 0.2, "40": 0.4, "80": 0.8}
    by_constant = json.loads(call("--pivot", "length", "--rows", "train.steps", "--json").out)
    assert [row["runs"] for row in by_constant] == [40]
    call("--where", "variant=v1", "--out", str(tmp_path / "v1.parquet"))
    written = pq.read_table(tmp_path / "v1.parquet")
    assert set(written["variant"].to_pylist()) == {"v1"}
    assert len(written) == 5 * len(LENGTHS) * len(METRICS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--where", "train.stepz=3"], "there is no column 'train.stepz'; did you mean train.steps"),
        (["--where", "model.widht=3"], "there is no column 'model.widht'; did you mean model.width"),
        (["--rows", "seed"], "--rows concerns a pivot"),
        (["--pivot", "lenght"], "there is no column 'lenght'; did you mean length"),
        (["--pivot", "length", "--value", "token_em_fre"], "no run has a score 'token_em_fre'; did you mean token_em"),
        (["--pivot", "length", "--summary", "mediam"], "unknown summary 'mediam'; did you mean median"),
        (["--out", "x.xlsx"], "the name must end in .parquet, .csv, .json, .tex, .md"),
        (["--limit", "3", "--json"], "--limit concerns the table that is shown"),
    ],
)
def test_what_it_does_not_know_it_refuses(tmp_path, capsys, arguments, complaint):
    make_runs(tmp_path, 2, seeds=1)
    load_runs([tmp_path])
    assert main(["results", str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.strip().count("\n") == 0


def test_without_pyarrow_one_line_says_so(tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("longreach.results")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["results", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "longreach: tables of results need pyarrow: pip install 'longreach[table]'\n"


def test_a_pivot_by_length_keeps_the_longest_trained_and_the_longest_tested_length(tmp_path, monkeypatch, capsys):
    lengths = tuple(range(100, 2100, 100))
    for folder in make_runs(tmp_path, 2, lengths=lengths):
        (folder / "config.yaml").write_text(
            re.sub(r"lengths: \d+\.\.\d+", "lengths: 1..750", (folder / "config.yaml").read_text())
        )
    monkeypatch.setattr("longreach.cli.columns.out", Console(force_terminal=True, width=60))
    assert main(["results", str(tmp_path), "--pivot", "length"]) == 0
    printed = capsys.readouterr()
    heads = printed.out.splitlines()[0].split()
    assert heads[0] == "variant"
    assert heads[-2:] == ["700", "2000"]
    assert "no room for" in printed.err
    assert max(map(len, printed.out.splitlines())) <= 60
