"""`longreach text loss` and `text sparsity` as a person uses them."""

import json
import os
import signal

import pytest
import torch
from gguf_files import write_gguf
from helpers import execute_in
from stories import long_story, write_jsonl
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import longreach as lr
from longreach.api import EvalConfig, Lengths, LlamaConfig, RunConfig, Sequential, Span, TrainConfig
from longreach.cli.main import main
from longreach.tasks import Text
from longreach.text import Corpus, PrepareConfig, prepare


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
    found = json.loads(out.read_text())["losses"]
    ours = json.loads((trained / "run" / "losses.json").read_text())
    for name in ("as it is", scaled):
        assert [(row["by"], row["size"]) for row in found[name]] == [(row["by"], row["size"]) for row in ours]
        assert [row["nats"] for row in found[name]] == pytest.approx([row["nats"] for row in ours], abs=1e-4)
    assert [row["nats"] for row in found["rerope"]] != pytest.approx([row["nats"] for row in ours], abs=1e-6)


@pytest.fixture(scope="module")
def gguf(trained):
    """The exported model as a .gguf file."""
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    tokenizer = json.loads((trained / "exported" / "tokenizer.json").read_text())["model"]
    path = trained / "model.gguf"
    write_gguf(path, AutoModelForCausalLM.from_pretrained(trained / "exported"), tokenizer, end=1)
    return path


def test_a_gguf_file_gives_a_tokenizer_a_model_and_its_losses(trained, gguf, tmp_path, capsys):
    prepare_it = ["text", "prepare", str(trained / "stories.jsonl"), "--out", str(tmp_path / "corpus")]
    assert main([*prepare_it, "--tokenizer", str(gguf), "--valid", "0.2", "--test", "0.3"]) == 0
    ours, theirs = (Corpus.open(folder / "corpus").split("test").tokens for folder in (trained, tmp_path))
    assert ours.tolist() == theirs.tolist()
    capsys.readouterr()
    found = []
    for model, corpus in ((trained / "exported", trained / "corpus"), (gguf, tmp_path / "corpus")):
        assert main(["text", "loss", str(model), str(corpus), "--contexts", "16,96", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["losses"]["as it is"])
    assert [row["nats"] for row in found[0]] == pytest.approx([row["nats"] for row in found[1]], abs=1e-5)
    prepare_it[-1] += "-other"
    assert main([*prepare_it, "--tokenizer", str(tmp_path / "other.gguf")]) == 2
    assert f"there is no file {tmp_path / 'other.gguf'}" in capsys.readouterr().err


def test_a_model_of_a_gguf_file_is_saved_and_trained(trained, gguf, tmp_path):
    model, tokenizer = lr.load_huggingface(str(gguf))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    again, _ = lr.load_huggingface(str(tmp_path))
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in model.state_dict().items())
    Trainer(model, TrainingArguments(str(tmp_path), report_to=[], use_cpu=True))  # refuses quantized models


def test_a_text_file_is_cut_into_parts_with_intervals_over_them(trained, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(long_story(number, 60) for number in range(8)))
    command = ["text", "loss", str(trained / "exported"), str(text), "--contexts", "16,96"]
    out = tmp_path / "losses.json"
    assert main([*command, "--encoding", "{name: linear, factor: 64}", "--out", str(out)]) == 0
    output = capsys.readouterr()
    found = json.loads(out.read_text())
    held = found["holds_to"].values()
    assert all(one["low"] <= one["context"] <= one["high"] for one in held)
    cells = " ".join(f"{one['context']} ({one['low']} to {one['high']})" for one in held)
    assert output.out.splitlines()[-1].split() == f"holds to {cells}".split()
    assert {row["documents"] for row in found["losses"]["as it is"]} <= set(range(2, 33))
    assert "parts of the text" in output.err
    for flags, complaint in (
        (["--split", "test"], "--split concerns a prepared corpus"),
        (["--contexts", "99999"], "a context of 99999 needs 100063"),
    ):
        assert main([*command, *flags]) == 2
        assert complaint in capsys.readouterr().err
    assert main(["text", "loss", str(trained / "exported"), str(tmp_path / "nowhere")]) == 2
    assert "there is no file or folder" in capsys.readouterr().err


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
    found = json.loads(capsys.readouterr().out)["losses"]
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
