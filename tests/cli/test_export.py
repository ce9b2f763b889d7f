"""`longreach export`: a run as a folder that Hugging Face reads."""

import json
from dataclasses import replace

import pytest
import torch
from helpers import TINY, execute_in
from stories import stories, write_jsonl
from transformers import AutoModelForCausalLM, AutoTokenizer

from longreach.api import (
    Coupled,
    EvalConfig,
    ExecutionConfig,
    Lengths,
    LlamaConfig,
    ParityScratchpad,
    Pose,
    Randomized,
    RunConfig,
    Sequential,
    Span,
    TrainConfig,
    TransformerConfig,
)
from longreach.cli.main import main
from longreach.runs import Observer, load_model
from longreach.tasks import Text
from longreach.text import PrepareConfig, prepare

SIZE = {"layers": 1, "width": 16, "heads": 2}
MODELS = {
    "llama": (LlamaConfig(**SIZE, kv_heads=1), Pose(max_id=40)),
    "neox": (TransformerConfig(**SIZE), Sequential()),
    "randomized": (LlamaConfig(**SIZE), Randomized(max_id=40)),
    "coupled": (TransformerConfig(**SIZE), Coupled(max_id=40)),
    "scaled": (TINY, Sequential()),
}


def _config(name):
    model, ids = MODELS[name]
    train = TrainConfig(lengths=Span(1, 4), steps=3, batch_size=4)
    evaluate = EvalConfig(lengths=Lengths((4,)), samples=4, free_samples=2)
    return RunConfig(
        task=ParityScratchpad(),
        ids=ids,
        model=model,
        train=train,
        evaluate=evaluate,
        execution=ExecutionConfig(save_every=1),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return {name: execute_in(place / name, _config(name)) for name in MODELS}


@pytest.mark.parametrize(("name", "kind"), [("llama", "LlamaForCausalLM"), ("neox", "GPTNeoXForCausalLM")])
def test_what_is_written_computes_the_same(runs, name, kind, tmp_path, capsys):
    folder = tmp_path / "below" / "exported"
    assert main(["export", str(runs[name].path), str(folder), "--longest", "50"]) == 0
    assert kind in capsys.readouterr().out
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    task = ParityScratchpad()
    assert (type(theirs).__name__, theirs.config.max_position_embeddings) == (kind, 50)
    assert theirs.config.eos_token_id == task.stop_token
    assert json.loads((folder / "vocabulary.json").read_text()) == list(task.vocabulary)
    _, ours = load_model(runs[name])
    tokens = torch.tensor([[3, 1, 4, 1, 2]])
    with torch.no_grad():
        found = theirs.eval()(tokens).logits
        torch.testing.assert_close(found, ours.all_logits(tokens, torch.arange(5)[None, None]), rtol=1e-4, atol=1e-6)


def test_it_is_told_that_randomized_ids_become_dense_ones(runs, tmp_path, capsys):
    for name, told in (("randomized", True), ("llama", False)):
        assert main(["export", str(runs[name].path), str(tmp_path / name), "--longest", "50"]) == 0
        assert ("as ids randomized with test: dense" in " ".join(capsys.readouterr().out.split())) == told


@pytest.mark.parametrize("settings", [{"tokenizer": "bpe", "vocabulary": 300}, {"tokenizer": "bytes"}])
def test_a_model_of_text_comes_with_its_tokenizer(settings, tmp_path, capsys):
    texts = write_jsonl(tmp_path / "stories.jsonl", stories(30))
    prepare([str(texts)], tmp_path / "corpus", PrepareConfig(valid=0.2, test=0.2, **settings))
    task = Text(corpus=str(tmp_path / "corpus"))
    config = _config("llama")
    evaluate = replace(config.evaluate, lengths=Lengths((8,)), free_samples=0)
    train = replace(config.train, lengths=Span(16, 16))
    run = execute_in(tmp_path / "run", replace(config, task=task, train=train, evaluate=evaluate))
    assert main(["export", str(run.path), str(tmp_path / "exported")]) == 0
    capsys.readouterr()
    theirs = AutoTokenizer.from_pretrained(tmp_path / "exported")
    story = stories(3)[2]
    assert theirs(story)["input_ids"] == task.opened.tokenizer.encode(story)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert model.config.eos_token_id == theirs.eos_token_id
    assert main(["export", str(run.path), str(tmp_path / "own"), "--format", "longreach"]) == 0
    (tmp_path / "corpus").rename(tmp_path / "moved")
    own = AutoModelForCausalLM.from_pretrained(tmp_path / "own")
    tokens = torch.tensor([theirs(story[:9])["input_ids"]])
    with torch.no_grad():
        torch.testing.assert_close(own(tokens).logits, model.eval()(tokens).logits, rtol=1e-4, atol=1e-5)
    most = {"max_new_tokens": 4, "pad_token_id": 0}
    assert torch.equal(own.generate(tokens, **most), model.generate(tokens, attention_mask=tokens * 0 + 1, **most))


def _refused(capsys, *arguments):
    assert main(["export", *map(str, arguments)]) == 2
    return capsys.readouterr().err


def test_what_cannot_be_written_is_one_line(runs, tmp_path, capsys):
    folder, plain = tmp_path / "exported", ("--format", "huggingface")
    assert "cannot give them as ids coupled does" in _refused(capsys, runs["coupled"].path, folder, *plain)
    assert "with the attention scaled_softmax" in _refused(capsys, runs["scaled"].path, folder, *plain)
    assert "--longest must be at least 1, got 0" in _refused(capsys, runs["neox"].path, folder, "--longest", "0")
    assert "nowhere" in _refused(capsys, tmp_path / "nowhere", folder)
    assert not folder.exists()
    folder.mkdir()
    (folder / "precious").touch()
    assert "exists already" in _refused(capsys, runs["neox"].path, folder)


def test_a_run_that_is_not_finished_is_refused(tmp_path, capsys):
    asked = iter(range(1, 100))
    stopped = execute_in(tmp_path / "run", _config("neox"), observer=Observer(should_stop=lambda: next(asked) == 2))
    assert "is not finished" in _refused(capsys, stopped.path, tmp_path / "exported")
