"""`longreach probe` on a tiny model of Hugging Face and on a run of ours."""

import json
import re
import shutil

import pytest
import torch
from helpers import TINY, execute_in
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from longreach.api import (
    Copy,
    EvalConfig,
    Induction,
    Lengths,
    OptimizerConfig,
    RunConfig,
    Sequential,
    Span,
    TrainConfig,
)
from longreach.cli.main import main
from longreach.probe import Probed
from longreach.tasks import Text
from longreach.text import PrepareConfig, prepare

TEXT = """The miller kept a grey cat and a brown dog. The cat slept on the flour sacks, and the dog slept on the
step. When the miller called, the dog came at once; the cat came when the sacks were warm no more."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    words = ["<unk>", "<s>", *sorted({*TEXT.replace(",", " ,").replace(".", " .").replace(";", " ;").split()})]
    rules = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    rules.pre_tokenizer = pre_tokenizers.Whitespace()
    rules.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    template = "{% for message in messages %}user: {{ message['content'] }}{% endfor %} The"
    PreTrainedTokenizerFast(
        tokenizer_object=rules, unk_token="<unk>", bos_token="<s>", chat_template=template
    ).save_pretrained(path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = LlamaConfig(vocab_size=len(words), max_position_embeddings=64, initializer_range=0.4, **sizes)
    LlamaForCausalLM(config).save_pretrained(path)
    (path / "text.txt").write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    train = TrainConfig(lengths=Span(4, 6), steps=2, batch_size=4)
    test = EvalConfig(lengths=Lengths.parse("4"), samples=4, free_samples=2)
    config = RunConfig(task=Induction(symbols=4), ids=Sequential(), model=TINY, train=train, evaluate=test)
    return execute_in(tmp_path_factory.mktemp("runs") / "induction", config).path


FAST = ["--device", "cpu", "--masks", "12", "--held-out", "8", "--largest-k", "4"]


def test_passages_are_probed_shown_and_saved(folder, tmp_path, capsys):
    command = ["probe", str(folder), str(folder / "text.txt"), *FAST, "--length", "16", "--passages", "2"]
    assert main([*command, "--out", str(tmp_path / "found"), "--show", "2", "--targets", "last", "5"]) == 0
    printed = capsys.readouterr().out
    assert "10 in 2 passages" in printed
    assert "faithfulness (LDS)" in printed
    first, second = (Probed.load(tmp_path / "found" / f"passage-{number}") for number in range(2))
    assert first.pieces[:5] == ("<s>", "The", "miller", "kept", "a")
    assert second.pieces[0] == "<s>"  # every passage is opened as the model knows it
    assert len(first.tokens) == len(second.tokens) == 16
    assert first.targets.tolist() == [11, 12, 13, 14, 15]
    assert first.model.endswith("(fp32)")


def test_models_and_texts_of_the_same_name_are_told_apart(folder, tmp_path, capsys):
    """A model, a copy of it and another one, all in folders called `model`; two texts called `text.txt`."""
    for place in ("one", "copy", "other"):
        shutil.copytree(folder, tmp_path / place / "model")
    other = LlamaForCausalLM.from_pretrained(tmp_path / "other" / "model")
    with torch.no_grad():
        other.lm_head.weight[0, 0] += 1
    other.save_pretrained(tmp_path / "other" / "model")
    (tmp_path / "other" / "text.txt").write_text(TEXT.replace("cat", "dog"))
    for number, (place, text) in enumerate([("one", folder), ("copy", tmp_path / "other"), ("other", folder)]):
        command = ["probe", str(tmp_path / place / "model"), str(text / "text.txt"), *FAST, "--length", "16"]
        assert main([*command, "--out", str(tmp_path / "found" / str(number)), "--targets", "last", "3"]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "found")]) == 0
    rows = json.loads((tmp_path / "found" / "report" / "summary.json").read_text())
    medians = [row for row in rows if (row["quantity"], row["by"], row["statistic"]) == ("span", "all", "median")]
    assert sorted(row["documents"] for row in medians) == [1, 2]
    assert all(row["group"].startswith("model (fp32) #") for row in medians)
    assert "text.txt #" in (tmp_path / "found" / "report" / "probe.html").read_text()


def test_a_message_goes_through_the_chat_template(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", (folder / "text.txt").open())
    command = ["probe", str(folder), "-", *FAST, "--chat", "--length", "64", "--targets", "every", "20"]
    assert main([*command, "--json", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"] == 3
    assert Probed.load(tmp_path / "passage-0").pieces[-1] == "The"


def test_a_run_is_probed_on_tokens_of_its_task(trained, tmp_path, capsys):
    (tmp_path / "prompt").write_text("a b c d b c")
    assert main(["probe", str(trained), str(tmp_path / "prompt"), *FAST, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"].endswith("induction (fp32)")
    assert told["predictions"] == 3


def test_a_run_on_text_is_probed_with_its_own_tokenizer(corpus, tmp_path, capsys):
    train = TrainConfig(lengths=Span(32, 32), steps=2, batch_size=4)
    test = EvalConfig(lengths=Lengths.parse("32"), samples=4, free_samples=0)
    config = RunConfig(task=Text(corpus=corpus), ids=Sequential(), model=TINY, train=train, evaluate=test)
    run = execute_in(tmp_path / "run", config).path
    command = ["probe", str(run), corpus, *FAST, "--length", "24", "--targets", "last", "3"]
    assert main([*command, "--out", str(tmp_path / "found"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"] == 3
    assert len("".join(Probed.load(tmp_path / "found" / "passage-0").pieces).encode()) == 24


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "TEXT is missing"),
        (["nothing.txt"], "there is no file nothing.txt"),
        (["text.txt", "--targets", "some"], "--targets must be all, last N or every N, got 'some'"),
        (["text.txt", "--keep", "2"], "probe.keep must be between 0 and 1, got 2.0"),
        (["text.txt", "--method", "gradient", "--masks", "9"], "--masks concerns the method masks, not gradient"),
        (["text.txt", "--passages", "99"], "not enough for 99 passages"),
        (["text.txt", "--split", "test"], "--split concerns a prepared corpus"),
        (["text.txt", "--chat", "--length", "9"], "a chat is probed whole"),
        (["text.txt", "--calibrate"], "leave out TEXT"),
        (["--calibrate"], "has no task to calibrate the probe on"),
    ],
)
def test_mistakes_are_one_line(folder, arguments, complaint, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["probe", str(folder), *arguments, "--device", "cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_a_text_too_long_for_the_model_is_refused(folder, tmp_path, capsys):
    (tmp_path / "long").write_text(TEXT * 3)
    assert main(["probe", str(folder), str(tmp_path / "long"), "--device", "cpu", "--length", "100"]) == 2
    assert "reads at most 64 tokens, and the text has 100" in capsys.readouterr().err


def test_what_is_no_model_is_named(tmp_path, capsys):
    (tmp_path / "text").write_text(TEXT)
    for name in ("missing.gguf", str(tmp_path)):
        assert main(["probe", name, str(tmp_path / "text"), "--device", "cpu"]) == 2
        assert name in capsys.readouterr().err


def test_ids_that_do_not_count_are_refused(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert config.count("name: sequential") == 1
    (tmp_path / "run" / "config.yaml").write_text(config.replace("name: sequential", "name: randomized"))
    (tmp_path / "prompt").write_text("a b c d")
    assert main(["probe", str(tmp_path / "run"), str(tmp_path / "prompt"), "--device", "cpu"]) == 2
    assert "randomized" in capsys.readouterr().err


def test_a_probe_of_randomized_ids_says_that_it_reads_dense_ones(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text()
    drawn = re.sub(r"name: sequential\n(\s+)max_id: 0", r"name: randomized\n\1max_id: 99", config)
    assert drawn != config
    (tmp_path / "run" / "config.yaml").write_text(drawn)
    (tmp_path / "prompt").write_text("a b c a")
    assert main(["probe", str(tmp_path / "run"), str(tmp_path / "prompt"), *FAST, "--json"]) == 0
    assert "dense IDs" in json.loads(capsys.readouterr().out)["model"]


def test_documents_of_a_prepared_corpus_are_read_by_the_models_own_tokenizer(folder, tmp_path, capsys):
    (tmp_path / "texts.jsonl").write_text(
        "".join(json.dumps({"text": f"{TEXT} {number}"}) + "\n" for number in range(4))
    )
    prepare([str(tmp_path / "texts.jsonl")], tmp_path / "corpus", PrepareConfig(tokenizer="bytes", valid=0.0, test=0.0))
    command = ["probe", str(folder), str(tmp_path / "corpus"), *FAST, "--length", "12", "--targets", "last", "2"]
    assert main([*command, "--split", "train", "--passages", "2", "--out", str(tmp_path / "found"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"] == 4
    assert Probed.load(tmp_path / "found" / "passage-1").pieces[:4] == ("<s>", "The", "miller", "kept")


def test_a_calibration_tells_all_methods_and_draws_them(tmp_path, capsys):
    train = TrainConfig(lengths=Span(2, 2), steps=60, batch_size=32, optimizer=OptimizerConfig(lr=1e-2, warmup=5))
    test = EvalConfig(lengths=Lengths.parse("2"), samples=4, free_samples=2)
    config = RunConfig(task=Copy(symbols=2), ids=Sequential(), model=TINY, train=train, evaluate=test)
    run = execute_in(tmp_path / "copy", config).path
    command = ["probe", str(run), "--calibrate", "2", "--held-out", "4", "--largest-k", "2", "--device", "cpu"]
    assert main([*command, "--out", str(tmp_path / "methods.png"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["masks"] for row in rows] == [32, 64, 128, 256, 512, None, None, None]
    assert (tmp_path / "methods.png").read_bytes().startswith(b"\x89PNG")
