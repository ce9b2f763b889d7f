"""`longreach dataset --lm-eval`: tasks of the lm-evaluation-harness, which refuse prompts that it would cut."""

import importlib.util
import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from helpers import execute_in

import longreach as lr
from longreach.cli.main import main
from longreach.verbs.harness import group_name

LENGTHS = [2, 5]


class Loader(yaml.SafeLoader):
    """Reads `!function` as the harness does."""


Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("tasks") / "my-parity"
    written = lr.dataset(lr.ParityScratchpad(), LENGTHS, place, samples=6, lm_eval=True)
    assert written.group == "longreach_my_parity"
    assert f"--tasks longreach_my_parity --include_path {place}" in str(written)
    return place


def settings_of(path):
    return yaml.load(path.read_text(), Loader)


def test_a_task_for_each_length_and_a_group(folder):
    group = settings_of(folder / "group.yaml")
    assert (group["group"], group["task"]) == ("longreach_my_parity", [f"longreach_my_parity_{n}" for n in LENGTHS])
    for length in LENGTHS:
        task = settings_of(folder / f"length-{length}.yaml")
        rows = [json.loads(line) for line in (folder / task["metadata"]["file"]).read_text().splitlines()]
        assert task["task"] == f"longreach_my_parity_{length}"
        assert {row["length"] for row in rows} == {length} == {task["metadata"]["length"]}
        assert all(row["answer"].split()[-1] == task["metadata"]["stop"] for row in rows)
        assert task["generation_kwargs"] == {"until": [".", "\n"], "do_sample": False}
        assert {task["doc_to_text"], task["doc_to_target"]} <= set(rows[0])
        assert (folder / f"{task['class'].split('.')[0]}.py").is_file()
    assert "lm_eval --model hf" in (folder / "README.md").read_text()


def test_a_task_without_a_stop_has_none(tmp_path):
    lr.dataset("parity", [3], tmp_path / "p", samples=2, lm_eval=True)
    task = settings_of(tmp_path / "p" / "length-3.yaml")
    assert task["metadata"]["stop"] is None
    assert task["generation_kwargs"]["until"] == ["\n"]


def test_what_cannot_be_a_task_is_refused(tmp_path, capsys):
    for words, told in (
        (["copy", "--out", str(tmp_path / "x.jsonl")], "--lm-eval writes tasks beside the samples"),
        (["tape", "--out", str(tmp_path / "x")], "parts of an answer of tape are drawn"),
    ):
        assert main(["dataset", *words, "--lengths", "4", "--samples", "2", "--lm-eval"]) == 2
        assert told in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


class Words:
    """A tokenizer with a token for each word."""

    def encode(self, text, add_special_tokens=True):
        return text.split()


class Harness:
    """Stands in for the class of the harness, as far as the tasks use it."""

    def __init__(self, config):
        self.config = SimpleNamespace(**config)
        self.download()

    def build_all_requests(self):
        asked = self.config.generation_kwargs
        self.instances = [SimpleNamespace(args=(row["prompt"], dict(asked))) for row in self.dataset["test"]]


@pytest.fixture
def new_task(folder, monkeypatch):
    """Return a function that makes the task of a length for a model that takes so many tokens."""
    api, utils = ModuleType("lm_eval.api.task"), ModuleType("lm_eval.models.utils")
    api.ConfigurableTask = Harness
    utils.normalize_gen_kwargs = lambda settings: settings
    utils.resolve_max_length = lambda config, tokenizer: config
    modules = {"lm_eval.api.task": api, "lm_eval.models.utils": utils}
    for name in ("lm_eval", "lm_eval.api", "lm_eval.models"):
        modules[name] = ModuleType(name)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = spec_from_file_location("written", folder / "longreach_task.py")
    code = module_from_spec(spec)
    spec.loader.exec_module(code)
    monkeypatch.setattr(code, "AutoTokenizer", SimpleNamespace(from_pretrained=lambda name: Words()))
    monkeypatch.setattr(code, "AutoConfig", SimpleNamespace(from_pretrained=int))

    def make(length, **given):
        task = settings_of(folder / f"length-{length}.yaml")
        return code.ExactAnswers({**task, "metadata": {**task["metadata"], **given}})

    return make


@pytest.mark.parametrize("given", [{"pretrained": "12"}, {"pretrained": "99", "max_length": 12}])
def test_a_prompt_that_does_not_fit_is_refused(new_task, given):
    new_task(2, **given).build_all_requests()  # 4 + 3 tokens
    with pytest.raises(ValueError, match="a prompt of 7 tokens and 6 for its answer do not fit into the model, which"):
        new_task(5, **given).build_all_requests()
    task = new_task(5, pretrained="13")
    task.build_all_requests()
    assert {request.args[1]["max_gen_toks"] for request in task.instances} == {6}


def test_the_blank_before_an_answer_is_part_of_its_room(new_task, monkeypatch):
    monkeypatch.setattr(Words, "encode", lambda self, text, add_special_tokens=True: list(text))
    task = new_task(5, pretrained="99")
    task.build_all_requests()
    longest = max(len(f" {row['answer']}") for row in task.dataset["test"])
    assert {request.args[1]["max_gen_toks"] for request in task.instances} == {longest}


def test_an_answer_without_a_stop_word_ends_with_its_length(new_task):
    task, doc = new_task(2, pretrained="99", stop=None), {"answer": "0 1"}
    scores = {text: task.process_results(doc, [text])["exact_match"] for text in (" 0 1", " 0 1 1", " 0", " 1 1")}
    assert scores == {" 0 1": 1.0, " 0 1 1": 1.0, " 0": 0.0, " 1 1": 0.0}


def test_a_model_that_the_harness_does_not_name_is_refused(new_task):
    for given in ({}, {"tokenizer": "x"}, {"pretrained": object()}):
        with pytest.raises(ValueError, match="must know the model's tokenizer and limit"):
            new_task(2, **given).build_all_requests()


def test_an_answer_counts_if_all_words_are_right(new_task):
    task, doc = new_task(2, pretrained="99"), {"answer": "0 1 ."}
    scores = {text: task.process_results(doc, [text])["exact_match"] for text in (" 0 1", "0 1 ", "0", "0 1 1", "01")}
    assert scores == {" 0 1": 1.0, "0 1 ": 1.0, "0": 0.0, "0 1 1": 0.0, "01": 0.0}


def test_the_group_has_the_name_of_its_folder(tmp_path, monkeypatch):
    (tmp_path / "a b").mkdir()
    monkeypatch.chdir(tmp_path / "a b")
    assert group_name(Path(".")) == "longreach_a_b"


@pytest.mark.slow
def test_the_harness_scores_as_predict_does(folder, tmp_path):
    if importlib.util.find_spec("lm_eval") is None:
        pytest.skip("lm-eval is not installed: pip install lm-eval==0.4.13")
    config = lr.RunConfig(
        task=lr.ParityScratchpad(),
        ids=lr.Predicted(max_id=40),
        model=lr.TransformerConfig(layers=1, width=32, heads=4, position_head=lr.PointerConfig()),
        train=lr.TrainConfig(lengths=lr.Span(1, 4), steps=150, batch_size=32, optimizer=lr.OptimizerConfig(lr=1e-2)),
        evaluate=lr.EvalConfig(lengths=lr.Lengths((4,)), samples=4, free_samples=2),
    )
    run = execute_in(tmp_path / "run", config)
    lr.export(run, tmp_path / "model", longest=12)

    def harness(*options):
        command = [sys.executable, "-m", "longreach.hf", "lm_eval", "--model", "hf", "--device", "cpu", *options]
        command += ["--include_path", str(folder), "--batch_size", "4"]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    names, model = "longreach_my_parity_2,longreach_my_parity_5", f"pretrained={tmp_path / 'model'}"
    done = harness("--tasks", names, "--model_args", f"{model},max_length=13", "--output_path", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = (tmp_path / "out").rglob("results*.json")
    found = json.loads(path.read_text())["results"]
    for length in LENGTHS:
        rows = [json.loads(line) for line in (folder / f"length-{length}.jsonl").read_text().splitlines()]
        right = sum(str(lr.predict(run, row["prompt"])) == row["answer"] for row in rows)
        assert found[f"longreach_my_parity_{length}"]["exact_match,none"] == pytest.approx(right / len(rows))
    cut = harness("--tasks", "longreach_my_parity", "--model_args", model)
    assert cut.returncode != 0
    assert "a prompt of 7 tokens and 6 for its answer do not fit into the model, which takes 12" in cut.stderr
