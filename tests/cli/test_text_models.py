"""`longreach reach` and `longreach text sparsity` as a person uses them."""

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


LOSS = ["--no-retrieval", "--json"]


def losses_of(capsys, *words):
    """Run the verb without retrieval, and return the rows of losses by name."""
    assert main(["reach", *map(str, words), *LOSS]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    return {name: one["losses"] for name, one in measured.items()}


def nats(rows):
    return [row["nats"] for row in rows]


def test_an_exported_model_has_the_losses_of_its_run(trained, capsys):
    scaled = "{name: scaled_rope, method: linear, factor: 1.0, trained_to: 32}"  # which changes nothing
    command = [trained / "exported", trained / "corpus", "--contexts", "16,96,128", "--samples", "256"]
    found = losses_of(capsys, *command, "--encoding", scaled, "--encoding", "rerope")
    ours = json.loads((trained / "run" / "losses.json").read_text())
    for name in ("as it is", scaled):
        assert [(row["by"], row["size"]) for row in found[name]] == [(row["by"], row["size"]) for row in ours]
        assert nats(found[name]) == pytest.approx(nats(ours), abs=1e-4)
    assert nats(found["rerope"]) != pytest.approx(nats(ours), abs=1e-6)


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
        found.append(nats(losses_of(capsys, model, corpus, "--contexts", "16,96")["as it is"]))
    assert found[0] == pytest.approx(found[1], abs=1e-5)
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


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """A plain text file."""
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("\n".join(long_story(number, 60) for number in range(12)))
    return path


def test_a_text_file_gives_a_table_a_verdict_and_a_page(trained, stories, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["reach", str(trained / "exported"), str(stories), "--contexts", "48,96,192", "--questions", "1"]
    assert main([*command, "--samples", "256", "--encoding", "linear", "--needles", "1", "--out", str(out)]) == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[0] == "as it is"
    assert lines[1].split("  ")[0] == "context"
    assert "no needle" in lines[1]
    assert [line.split()[0] for line in lines[2:5]] == ["48", "96", "192"]
    assert "parts of the text" in output.err
    found = json.loads((out / "reach.json").read_text())
    for name in ("as it is", "linear"):
        one = found["measured"][name]
        held = one["holds_to"]
        assert f"holds to {held['context']} ({held['low']} to {held['high']}) tokens; " in output.out
        assert [gain["context"] for gain in one["gains"]] == [96, 192]
        assert {(row["context"], row["needles"]) for row in one["retrieval"]} == {(96, 0), (96, 1), (192, 0), (192, 1)}
        assert all(row["low"] <= row["right"] / row["questions"] <= row["high"] for row in one["retrieval"])
    assert found["model"]["trained_to"] == 96
    assert len(found["left_out"]) == 1
    assert found["left_out"][0].startswith("retrieval of one needle needs a context of ")
    assert found["left_out"][0].endswith(" tokens: not measured at 48")
    assert found["left_out"][0] in output.err
    assert found["texts"]["unit"] == "parts of the text"
    page = (out / "reach.html").read_text()
    assert main(["report", str(out), "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == page
    assert main([*command, "--out", str(out)]) == 2
    assert "reach.json exists already" in capsys.readouterr().err


def test_lines_of_a_table_are_documents(trained, tmp_path, capsys):
    rows = [{"story": long_story(number, 60)} for number in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [trained / "exported", tmp_path / "rows.jsonl", "--field", "story", "--samples", "256"]
    found = losses_of(capsys, *command)["as it is"]
    assert {row["size"] for row in found if row["by"] == "context"} == {16, 32, 64, 128}  # twice 96, and a power of 2
    assert {row["documents"] for row in found} <= {2, 3, 4}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL", "TEXT", "--split", "test"], "--split concerns a prepared corpus"),
        (["MODEL", "TEXT", "--field", "text"], "--field concerns .jsonl and .parquet files"),
        (["MODEL", "TEXT", "--contexts", "99999"], "a context of 99999 needs 100063"),
        (["MODEL", "TEXT", "--contexts", "0"], "--contexts: lengths must be whole numbers from 1"),
        (["MODEL", "TEXT", "--needles", "one"], "--needles must be numbers such as 1,4"),
        (["MODEL", "TEXT", "--needles", "17"], "needles[0] must be at most 16, got 17"),
        (["MODEL", "TEXT", "--depths", "0.5,1.5"], "--depths must be from 0 to 1, got 1.5"),
        (["MODEL", "TEXT", "--encoding", "yarm"], "did you mean yarn"),
        (["MODEL", "TEXT", "--out", "TEXT"], "is not a folder"),
        (["MODEL", "TEXT", "--probe", "-1"], "--probe must not be negative"),
        (["MODEL", "nowhere"], "there is no file or folder nowhere"),
        (["MODEL", "TEXT", "CORPUS"], "is a prepared corpus, which is measured alone"),
        (["RUN", "TEXT"], "is a run of longreach, and no model of Hugging Face: longreach eval"),
        (["nowhere/at-all", "TEXT"], "there is no model 'nowhere/at-all'"),
    ],
)
def test_mistakes_in_the_words_of_reach_are_one_line(trained, stories, capsys, monkeypatch, words, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = {"MODEL": trained / "exported", "TEXT": stories, "CORPUS": trained / "corpus", "RUN": trained / "run"}
    assert main(["reach", *(str(named.get(word, word)) for word in words)]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("longreach: ")]
    assert len(error) == 1
    assert message in error[0]


def test_the_probe_says_how_few_tokens_predictions_need(trained, stories, capsys):
    command = ["reach", str(trained / "exported"), str(stories), "--contexts", "64", "--samples", "64", *LOSS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("longreach.extension.measure.PASSAGE", 24)
        assert main([*command, "--probe", "2"]) == 0
    found = json.loads(capsys.readouterr().out)["probe"]
    assert found["passages"] == 2
    assert found["predictions"] == 2 * len(range(3, 24, 8))


def test_encodings_take_the_trained_length_from_the_models_config(trained, tmp_path, capsys):
    command = [trained / "exported", trained / "corpus", "--contexts", "16,128"]
    left_out = ["{name: scaled_rope, method: yarn, factor: 4}", "yarn", "{name: ntk, factor: 4}", "self_extend"]
    said = [
        "{name: scaled_rope, method: yarn, factor: 4, trained_to: 96}",
        "{name: scaled_rope, method: yarn, factor: 8, trained_to: 96}",
        "{name: scaled_rope, method: ntk, factor: 4}",
        "{name: self_extend, window: 48}",
    ]
    found = losses_of(capsys, *command, *(word for text in [*left_out, *said] for word in ("--encoding", text)))
    for short, full in zip(left_out, said, strict=True):
        assert nats(found[short]) == nats(found[full]), short


def test_ctrl_c_stops_between_two_operations(trained, monkeypatch, capsys):
    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the signal was ignored")

    command = ["reach", str(trained / "exported"), str(trained / "corpus"), "--contexts", "128"]
    for work in ("evaluate_text", "measure_retrieval"):
        with monkeypatch.context() as patch:
            patch.setattr(f"longreach.extension.measure.{work}", interrupted)
            assert main(command) == 130
    story = str(trained / "stories.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr("longreach.cli.probe.probe", interrupted)
        assert main(["probe", str(trained / "exported"), story, "--length", "16", "--device", "cpu"]) == 130
    assert capsys.readouterr().err.count("longreach: interrupted") == 3


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
    assert main(["reach", str(trained / "exported"), str(tmp_path / "more")]) == 2
    assert "has other tokens than" in capsys.readouterr().err
