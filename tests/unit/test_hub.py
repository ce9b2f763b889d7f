"""Names on Hugging Face's hub: a misspelt one is told at once, and one that is there is left to its loader."""

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import constants, errors

from longreach.api import LlamaConfig, ScaledRopeConfig, build_model, to_huggingface
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.hf.load import check_weights, load_huggingface
from longreach.system.huggingface import LEAST, import_transformers
from longreach.text import Bytes, as_subwords
from longreach.text.hub import check_name
from longreach.text.subwords import from_hugging_face

ROOT = Path(__file__).parents[2]
ANSWER = {"response": SimpleNamespace(headers={}, request=None)}


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Lets a test say what the hub answers, and tells what it was asked for.  The cache is empty."""
    urls, answers = [], []

    def answer(url):
        urls.append(url)
        if answers:
            raise answers.pop(0)

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", answer)
    return SimpleNamespace(urls=urls, answers=answers)


def test_a_hub_out_of_reach_is_tried_twice_and_told_in_one_line(asked, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("Nobody in Zürich counts the long way round. " * 9)
    for command in (
        [
            "text",
            "prepare",
            str(tmp_path / "text.txt"),
            "--tokenizer",
            "nobody/nothing",
            "--out",
            str(tmp_path / "out"),
        ],
        ["probe", "nobody/nothing", str(tmp_path / "text.txt"), "--device", "cpu"],
    ):
        asked.answers[:] = [OSError("no such host")] * 2
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "'nobody/nothing': not as a folder, not in the local Hugging Face cache, and https" in line
        assert "cannot be reached: no such host" in line
    assert len(asked.urls) == 4
    assert all("nobody/nothing" in url for url in asked.urls)


def test_a_name_that_the_hub_does_not_know_is_refused(asked):
    asked.answers.append(errors.RepositoryNotFoundError("401", **ANSWER))
    with pytest.raises(BadInput, match=r"no model 'nobody/nothing': .* not at https"):
        check_name("nobody/nothing", "model")
    with pytest.raises(BadInput, match="there is no folder 'here/and/there'"):
        check_name("here/and/there", "model")
    assert len(asked.urls) == 1


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [OSError("timed out")],  # then it answers
        [errors.GatedRepoError("403", **ANSWER)],
        [errors.RemoteEntryNotFoundError("404", **ANSWER)],
        [errors.HfHubHTTPError("503", **ANSWER)],
    ],
    ids=["there", "slow", "gated", "without that file", "in trouble"],
)
def test_what_may_be_there_is_left_to_its_loader(asked, answers):
    asked.answers[:] = answers
    check_name("somebody/something", "model")
    assert not asked.answers


def test_what_is_here_is_not_asked_for(asked, tmp_path):
    check_name(str(tmp_path), "model")
    cached = tmp_path / "cache" / "models--somebody--something"
    (cached / "snapshots" / "1234").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1234")
    (cached / "snapshots" / "1234" / "tokenizer.json").touch()
    check_name("somebody/something", "tokenizer")
    assert not asked.urls


@pytest.mark.parametrize("found", ["5.4.9", "4.57.1", "5.0.0rc1"])
def test_an_old_transformers_is_refused_wherever_it_is_used(found, monkeypatch, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("A line.")
    model = build_model(LlamaConfig(layers=1, width=16, heads=2), 5, 0)
    scaled = build_model(LlamaConfig(layers=1, width=16, heads=2, encoding=ScaledRopeConfig()), 5, 0)
    monkeypatch.setattr(metadata, "version", lambda name: found)
    line = rf"needs transformers 5\.5 or newer, found {re.escape(found)}: pip install 'longreach\[hf\]' --upgrade"
    for use in (
        lambda: to_huggingface(model),
        lambda: from_hugging_face("nobody/nothing"),
        lambda: scaled.encoding.frequencies(0, scaled.embed.weight.device),
    ):
        with pytest.raises(BadInput, match=line):
            use()
    assert main(["probe", "nobody/nothing", str(tmp_path / "text.txt"), "--device", "cpu"]) == 2
    assert re.fullmatch(f"longreach: nobody/nothing {line}\n", capsys.readouterr().err)


def test_a_missing_transformers_is_one_line(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(BadInput, match=r"a model needs the package transformers: pip install 'longreach\[hf\]'"):
        import_transformers("a model")


def test_one_file_imports_transformers_and_the_package_asks_for_the_same_release():
    pattern = re.compile(r"^\s*(from|import) transformers|import_module\(.transformers", flags=re.M)
    found = [path.name for path in (ROOT / "src").rglob("*.py") if pattern.search(path.read_text())]
    assert found == ["longreach_task.py"]  # is copied into folders of tasks, where it runs without longreach
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = (name for name in extras["hf"] if name.startswith("transformers"))
    assert wanted == f"transformers>={LEAST[0]}.{LEAST[1]}"


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_model_folder_cannot_name_a_kernel(key, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=258, **sizes)).save_pretrained(tmp_path)
    as_subwords(Bytes()).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: "some/kernel"}))
    model, _ = load_huggingface(str(tmp_path))
    assert model.config._attn_implementation == "sdpa"


def test_only_the_weights_that_are_read_count(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"0")
    for other in ("pytorch_model.bin", "consolidated.safetensors", "training_args.bin"):
        with (tmp_path / other).open("wb") as file:
            file.truncate(1 << 42)  # takes no room on the disk
    check_weights(str(tmp_path), "cpu", pytest.fail)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BadInput, match="use a smaller model"):
        check_weights(str(tmp_path), "cpu", pytest.fail)
