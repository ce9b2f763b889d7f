"""`longreach inspect` as a person or a script meets it."""

import json
import re
from dataclasses import replace

import pytest
from helpers import TINY, execute_in, generate_the_truth

from longreach.api import (
    Coupled,
    EvalConfig,
    GraphWalk,
    LearnedConfig,
    Lengths,
    Oracle,
    ParityScratchpad,
    PointerChasing,
    PointerConfig,
    Predicted,
    RunConfig,
    Sequential,
    Span,
    SparseParity,
    TableConfig,
    TrainConfig,
    VariableAssignment,
)
from longreach.cli.main import main
from longreach.verbs.inspection import MOST_SAMPLES, SAMPLES

CHAIN = VariableAssignment(num_names=14, hops=Span(1, 3), echo=True, end="marked")
POINTER = replace(TINY, position_head=PointerConfig())
TABLE = replace(TINY, position_head=TableConfig(), encoding=LearnedConfig(max_id=40))
RUNS = {
    "pointer": (CHAIN, Predicted(max_id=40), POINTER),
    "table": (CHAIN, Predicted(max_id=40), TABLE),
    "rule": (ParityScratchpad(), Coupled(max_id=40), TINY),
    "count": (ParityScratchpad(), Sequential(), TINY),
    "walk": (GraphWalk(num_names=8, steps=Span(1, 3)), Predicted(max_id=40), POINTER),
    "chase": (PointerChasing(num_names=12), Predicted(max_id=40), POINTER),
    "one token": (SparseParity(), Sequential(), TINY),
    "oracle": (CHAIN, Oracle(max_id=40), TINY),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of two steps for each case."""
    folder = tmp_path_factory.mktemp("runs")
    for name, (task, ids, model) in RUNS.items():
        train = TrainConfig(lengths=Span(3, 6), steps=2, batch_size=4)
        evaluate = EvalConfig(lengths=Lengths((6,)), samples=2, free_samples=2)
        execute_in(folder / name, RunConfig(task=task, ids=ids, model=model, train=train, evaluate=evaluate))
    return folder


def _json(capsys, *arguments):
    assert main(["inspect", *map(str, arguments), "--device", "cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _text(capsys, *arguments):
    assert main(["inspect", *map(str, arguments), "--device", "cpu"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in RUNS if name != "oracle"])
def test_every_kind_of_run_can_be_looked_into(runs, name, capsys):
    result = _json(capsys, runs / name)
    steps, prompt = result["steps"], result["prompt_tokens"]
    assert result["predicts_ids"] == (name in ("pointer", "table", "walk", "chase"))
    assert [step["writes"] for step in steps] == result["tokens"][prompt:]
    assert len(result["ids"]) == len(result["tokens"]) - 1
    assert {len(ids) for ids in result["ids"]} == {2 if result["predicts_ids"] else 1}
    assert steps[-1]["ids"] is None
    if not result["predicts_ids"]:
        assert all(step["id_probability"] is None for step in steps)
        assert all(step["ids"] == step["true_ids"] for step in steps if step["true_ids"] and step["ids"])
    points = any(level["points_at"] for step in steps for level in step["levels"])
    assert points == (name in ("pointer", "walk", "chase"))
    assert result["right"] == (result["stopped"] and result["tokens"][prompt:] == result["true_answer"])
    printed = _text(capsys, runs / name)
    for heading in ("step", "reads", "writes", "next ID"):
        assert heading in printed
    assert ("true ID" in printed) == result["predicts_ids"]
    assert ("points at" in printed) == points
    assert ("level" in printed.splitlines()[1]) == (len(result["levels"]) > 1)
    assert "depends on" in printed
    assert printed.splitlines()[-1].startswith("right" if result["right"] else "wrong; the true answer is ")
    error = result["first_error"]
    if error is not None:
        assert f"the first error is the {error['wrong']} of step {error['step']}" in printed or result["right"]
        assert f"\n{error['step']} ! " in printed
        first = steps[error["step"]]
        wrong_token = first["writes"] != first["true_token"]
        assert error["wrong"] == ("token" if wrong_token else "ID")
        assert wrong_token or first["ids"] != first["true_ids"]


def test_the_sample_has_the_longest_training_length_or_another(runs, capsys):
    assert len(_json(capsys, runs / "rule")["true_answer"]) == 7
    assert len(_json(capsys, runs / "rule", "--length", 9)["true_answer"]) == 10
    first, second = (_json(capsys, runs / "rule", "--length", 9, "--seed", seed) for seed in (1, 2))
    assert first["tokens"] != second["tokens"]


def test_tokens_of_the_same_id_and_heads_on_them(runs, capsys):
    for step in _json(capsys, runs / "rule")["steps"]:
        assert step["shares_id_with"] == [step["number"]]
        assert len(step["heads"]) == 3
        assert all(0 <= head["mass"] <= 1 for head in step["heads"])
    assert "same ID" in _text(capsys, runs / "rule")
    printed = _text(capsys, runs / "count")
    assert "no step shares its ID with an earlier token" in printed
    assert "same ID" not in printed


def test_matches_are_shown_and_counted_by_level(runs, capsys, monkeypatch):
    monkeypatch.setattr("longreach.evaluation.look_inside.generate", generate_the_truth)
    result = _json(capsys, runs / "chase")
    assert result["levels"] == ["statement", "step"]
    printed = _text(capsys, runs / "chase")
    assert "no step shares its ID" not in printed
    for number, level in enumerate(result["levels"]):
        own = [ids[number] for ids in result["ids"]]
        naive = [[j for j in range(s["index"]) if own[j] == own[s["index"]] != 0] for s in result["steps"]]
        assert [step["levels"][number]["matches"] for step in result["steps"]] == naive
        count = result["matches"][number]
        assert (count["level"], count["tokens"]) == (level, sum(map(len, naive)))
        assert count["tokens"] > 0
        steps = f"{count['steps']} of {len(result['steps'])} steps"
        assert f"{level} in {steps}, {count['tokens']} tokens ({count['needed']} needed)" in printed
    lines = printed[: printed.index("(heads")].splitlines()
    assert sum(" statement " in line for line in lines) == sum(" step " in line for line in lines) == len(naive)


def test_given_tokens_are_named_as_such(runs, capsys):
    assert [step["given"] for step in _json(capsys, runs / "walk")["steps"][:4]] == [False, True, False, True]
    assert " given" in _text(capsys, runs / "walk")


def test_a_prompt_of_ones_own(runs, capsys):
    result = _json(capsys, runs / "rule", "--prompt", "101")
    assert result["tokens"][:5] == ["1", "0", "1", ";", "="]
    assert result["true_answer"] == ["1", "1", "0", "."]
    for name in ("pointer", "table"):
        result = _json(capsys, runs / name, "--prompt", "a b b c c . ? a")
        assert result["true_answer"] == ["a", "b", "c", "."]
        assert all(step["true_ids"] is None for step in result["steps"])
        assert "(the true IDs are not known)" in _text(capsys, runs / name, "--prompt", "a b b c c . ? a")
    assert main(["inspect", str(runs / "walk"), "--prompt", "a b a b b a ? a", "--device", "cpu"]) == 2
    assert "are drawn: a prompt is not enough" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pointer", "rule", "walk"])
def test_details_of_one_step(runs, name, capsys):
    result = _json(capsys, runs / name, "--step", 0)
    more = result["detail"]
    assert more["step"] == 0
    assert len(more["tokens"]) == 5
    assert len(more["ids"]) == {"pointer": 2, "rule": 0, "walk": 2}[name]
    assert len(more["weights"]) == len(more["weights"][0]) == 2
    assert len(more["weights"][0][0]) == len(more["attended"])
    printed = _text(capsys, runs / name, "--step", 0)
    assert "step 0" in printed
    assert "the tokens that some head attends to most" in printed
    for level, mass in zip(result["steps"][0]["levels"], more["matched"], strict=True):
        which = f"same {level['level'] if len(more['matched']) > 1 else 'ID'}"
        assert (which in printed.split("step 0")[1]) == bool(level["matches"])
        assert (max(map(max, mass)) > 0) == bool(level["matches"])
    assert ("IDs" in printed) == (name != "rule")


@pytest.mark.parametrize("name", ["pointer", "walk", "count", "chase"])
def test_a_picture(runs, name, tmp_path, capsys):
    _text(capsys, runs / name, "--out", tmp_path / "look.png")
    assert (tmp_path / "look.png").read_bytes().startswith(b"\x89PNG")


def _page_data(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.S)[0])


@pytest.mark.parametrize("name", [name for name in RUNS if name != "oracle"])
def test_a_page_of_several_samples(runs, name, tmp_path, capsys):
    path = tmp_path / "look.html"
    lines = _text(capsys, runs / name, "--out", path, "--samples", 3, "--length", 4).splitlines()
    samples = _page_data(path)["samples"]
    assert [line[6:] for line in lines[:3]] == [sample["verdict"] for sample in samples]
    assert lines[3:] == [f"html  {path}"]
    assert len({" ".join(sample["tokens"]) for sample in samples}) > 1
    plain = _json(capsys, runs / name, "--length", 4)
    assert samples[0]["tokens"] == plain["tokens"]  # the first sample is that of the other outputs
    for sample in samples:
        assert len(sample["likeliest"]) == len(sample["steps"])
        assert (sample["attention"]["layers"], sample["attention"]["heads"]) == (2, 2)
        assert all((len(likely["ids"]) > 0) == sample["predicts_ids"] for likely in sample["likeliest"][:-1])


def test_a_page_of_prompts(runs, tmp_path, capsys):
    path = tmp_path / "look.html"
    result = _json(capsys, runs / "rule", "--prompt", "101", "--prompt", "0 1", "--out", path, "--step", 1)
    found = _page_data(path)
    assert result["html"] == str(path)
    assert [sample["true_answer"] for sample in result["samples"]] == [["1", "1", "0", "."], ["0", "1", "."]]
    assert [sample["tokens"] for sample in found["samples"]] == [sample["tokens"] for sample in result["samples"]]
    assert found["step"] == 1
    assert [sample["name"] for sample in found["samples"]] == ["prompt", "prompt"]


def test_a_page_has_six_samples_unless_told_otherwise(runs, tmp_path, capsys):
    lines = _text(capsys, runs / "one token", "--out", tmp_path / "look.html").splitlines()
    assert len(lines) == SAMPLES + 1


def test_bad_input_is_one_line_and_code_2(runs, tmp_path, monkeypatch, capsys):
    def fails(*arguments, words):
        assert main(["inspect", *map(str, arguments), "--device", "cpu"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("longreach: ")
        assert printed.err.count("\n") == 1
        assert words in printed.err

    run = runs / "rule"
    fails(tmp_path, words="is not a run folder")
    fails(run, "--step", 99, words="there is no step 99: the answer has steps 0..")
    fails(run, "--step", -1, words="there is no step -1")
    fails(run, "--length", 0, words="length must be at least 1")
    fails(run, "--length", 5, "--prompt", "101", words="give one of them")
    fails(run, "--prompt", "1 2", words="'2' is not a token")
    fails(run, "--out", "look.pdf", words="--out must end in .png or .html, got look.pdf")
    page = ("--out", tmp_path / "x.html")
    fails(run, "--samples", 3, words="--samples is for a page: give --out a name that ends in .html")
    fails(run, "--samples", 3, "--out", tmp_path / "x.png", words="--samples is for a page")
    fails(run, "--prompt", "1", "--prompt", "0", words="more than one --prompt is for a page")
    fails(run, "--samples", 0, *page, words="--samples must be 1..100, got 0")
    fails(run, "--samples", 101, *page, words="--samples must be 1..100, got 101")
    fails(run, *["--prompt", "1"] * 101, *page, words="the number of --prompt must be 1..100, got 101")
    fails(run, "--samples", 2, "--prompt", "1", *page, words="--samples draws them and --prompt is one already")
    fails(run, "--step", 99, *page, words="there is no step 99")
    monkeypatch.setattr("longreach.verbs.inspection.MOST_WEIGHTS", 1000)
    fails(run, *page, words="a page holds at most 1,000: use fewer --samples, a smaller --length")
    fails(run, "--out", "nodir/look.png", words="there is no folder nodir")
    fails(run, "--prompt", "1" * 70, "--out", tmp_path / "x.png", words="too many for a picture: at most 64")
    fails(runs / "oracle", words="it cannot generate")
    fails(run, "--task.k", "3", words="unknown argument")
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["inspect", "--help"])
    assert stopped.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"samples of an .html page, 1 to {MOST_SAMPLES} (default: {SAMPLES})" in printed
    assert all(
        flag in printed
        for flag in ("--length", "--seed", "--samples", "--prompt", "--step", "--out", "--device", "--json")
    )
