"""`longreach text loss` and `text sparsity` as a person uses them."""

import json
import os
import signal

import pytest
from helpers import execute_in
from stories import long_story, write_jsonl

from longreach.api import EvalConfig, Lengths, LlamaConfig, RunConfig, Sequential, Span, TrainConfig
from longreach.cli.main import main
from longreach.tasks import Text
from longreach.text import PrepareConfig, prepare


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A corpus of subwords, a tiny run on it, and the same model as Hugging Face reads it."""
    place = tmp_path_factory.mktemp("trained")
    write_jsonl(place / "stories.jsonl", [long_story(number, 60) for number in range(30)])
    settings = PrepareConfig(tokenizer="bpe", vocabulary=320, valid=0.2, test=0.3)
    prepare([str(place / "stories.jsonl")], place / "corpus", settings)
    config = RunConfig(
        task=Text(corpus=str(place / "corpus")),
        ids=Sequential(),
        model=LlamaConfig(layers=2, width=32, heads=2),
        train=TrainConfig(lengths=Span(32, 32), steps=30, batch_size=8),
        evaluate=EvalConfig(lengths=Lengths((16, 96, 128)), samples=256, free_samples=0),
    )
    run = execute_in(place / "run", config)
    assert main(["export", str(run.path), str(place / "exported"), "--longest", "96"]) == 0
    return place


def test_an_exported_model_has_the_losses_of_its_run(trained, tmp_path, capsys):
    command = ["text", "loss", str(trained / "exported"), str(trained / "corpus"), "--contexts", "16,96,128"]
    out = tmp_path / "losses.json"
    scaled = "{name: scaled_rope, method: linear, factor: 1.0, trained_to: 32}"  # which changes nothing
    assert main([*command, "--samples", "256", "--encoding", scaled, "--encoding", "rerope", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "as it is" in printed
    found = json.loads(out.read_text())
    ours = json.loads((trained / "run" / "losses.json").read_text())
    for name in ("as it is", scaled):
        assert [(row["by"], row["size"]) for row in found[name]] == [(row["by"], row["size"]) for row in ours]
        assert [row["nats"] for row in found[name]] == pytest.approx([row["nats"] for row in ours], abs=1e-4)
    assert [row["nats"] for row in found["rerope"]] != pytest.approx([row["nats"] for row in ours], abs=1e-6)


def test_encodings_take_the_trained_length_from_the_models_config(trained, tmp_path, capsys):
    command = ["text", "loss", str(trained / "exported"), str(trained / "corpus"), "--contexts", "16,128", "--json"]
    left_out = ["{name: scaled_rope, method: yarn, factor: 4}", "yarn", "{name: ntk, factor: 4}", "self_extend"]
    said = [
        "{name: scaled_rope, method: yarn, factor: 4, trained_to: 96}",
        "{name: scaled_rope, method: yarn, factor: 8, trained_to: 96}",
        "{name: scaled_rope, method: ntk, factor: 4}",
        "{name: self_extend, window: 48}",
    ]
    assert main([*command, *(word for text in [*left_out, *said] for word in ("--encoding", text))]) == 0
    found = json.loads(capsys.readouterr().out)
    for short, full in zip(left_out, said, strict=True):
        assert [row["nats"] for row in found[short]] == [row["nats"] for row in found[full]], short
    assert main([*command, "--encoding", "yarm"]) == 2
    assert "did you mean yarn" in capsys.readouterr().err


def test_ctrl_c_stops_between_two_operations(trained, monkeypatch, capsys):
    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the signal was ignored")

    command = ["text", "loss", str(trained / "exported"), str(trained / "corpus"), "--contexts", "16"]
    with monkeypatch.context() as patch:
        patch.setattr("longreach.evaluation.evaluate_text", interrupted)
        assert main(command) == 130
    story = str(trained / "stories.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr("longreach.cli.probe.probe", interrupted)
        assert main(["probe", str(trained / "exported"), story, "--length", "16", "--device", "cpu"]) == 130
    assert capsys.readouterr().err.count("longreach: interrupted") == 2


def test_sparsity_of_a_run_is_told_and_drawn(trained, tmp_path, capsys):
    out = tmp_path / "sparsity"
    command = ["text", "sparsity", str(trained / "run"), str(trained / "corpus"), "--within", "96"]
    command += ["--contexts", "96,128", "--samples", "192", "--masks", "24"]
    assert main([*command, "--out", str(out)]) == 0
    assert "change of loss" in capsys.readouterr().out
    summary = json.loads((out / "sparsity.json").read_text())
    assert summary["within"] == 96
    assert [row["context"] for row in summary["losses"]] == [96, 128]
    assert summary["settings"]["masks"] == 24
    assert {row["definition"] for row in summary["slopes"]} == {"k_sufficient", "k_weights", "k_participation"}
    assert (out / "sparsity.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--within", "96", "--contexts", "128"], "--within 96 must be one of --contexts 128"),
        (["--within", "64", "--contexts", "64,128"], "--within must be above 64"),
        (["--within", "96", "--contexts", "96,99999"], "no document has 99999 tokens of context"),
        (["--within", "96", "--contexts", "96,128", "--keep", "2"], "probe.keep must be between 0 and 1, got 2"),
    ],
)
def test_mistakes_are_one_line(trained, tmp_path, capsys, flags, message):
    command = ["text", "sparsity", str(trained / "run"), str(trained / "corpus"), "--out", str(tmp_path / "out")]
    assert main([*command, *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_other_tokens_are_refused(trained, tmp_path, capsys):
    write_jsonl(tmp_path / "stories.jsonl", [long_story(number, 60) for number in range(30)])
    prepare([str(tmp_path / "stories.jsonl")], tmp_path / "more", PrepareConfig(tokenizer="bpe", vocabulary=400))
    assert main(["text", "loss", str(trained / "exported"), str(tmp_path / "more")]) == 2
    assert "has other tokens than" in capsys.readouterr().err
    wrong = ["text", "loss", str(trained / "exported"), str(trained / "corpus"), "--encoding", "scaled_rop"]
    assert main(wrong) == 2
    assert "did you mean scaled_rope" in capsys.readouterr().err
