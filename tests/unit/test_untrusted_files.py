"""Nothing that is read executes code, and nothing in a file leads out of its folder."""

import hashlib
import json
import os
import pickle
import shutil

import pytest
import torch
from helpers import execute_in
from test_runs import CONFIG

from longreach.cli.main import main
from longreach.errors import BadInput, RunFailed
from longreach.runs import RunFolder, load_model, parse_recipe
from longreach.train import list_checkpoints, newest_intact


class _Payload:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


@pytest.fixture
def hacked(tmp_path):
    """A folder that a payload would make; it must not be there in the end."""
    place = tmp_path / "hacked"
    yield place
    assert not place.exists()


@pytest.fixture
def payload(hacked):
    return pickle.dumps(_Payload(hacked))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return execute_in(tmp_path_factory.mktemp("trained") / "run", CONFIG)


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of a finished run."""
    return RunFolder(shutil.copytree(trained.path, tmp_path / "run"))


def refused(capsys, *command):
    """The one line that a command fails with."""
    assert main([*map(str, command)]) in (1, 2)
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def vouch_for(checkpoint, content):
    """Put other content in a checkpoint's place, with a record that fits it."""
    checkpoint.path.write_bytes(content)
    record = checkpoint.path.with_suffix(".json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "sha256": hashlib.sha256(content).hexdigest()}))


@pytest.mark.parametrize("saved_by", ["pickle", "torch"])
def test_a_pickle_in_place_of_a_checkpoint_is_refused(folder, hacked, payload, capsys, tmp_path, saved_by):
    newest = list_checkpoints(folder.checkpoints)[-1]
    if saved_by == "torch":
        torch.save({"model.embed.weight": _Payload(hacked)}, tmp_path / "evil.pt")
        payload = (tmp_path / "evil.pt").read_bytes()
    newest.path.write_bytes(payload)
    assert newest_intact(folder.checkpoints, warn=lambda line: None).step < newest.step
    assert "is damaged: its checksum does not match" in refused(capsys, "predict", folder.path, "--prompt", "1 0")
    vouch_for(newest, payload)
    with pytest.raises(RunFailed, match=r"step-00000024.safetensors is damaged"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.yaml", "run.json", "scores.json", "card.json", "checkpoints/*24.json"])
def test_a_pickle_in_place_of_a_record_is_refused(folder, payload, capsys, name):
    (place,) = folder.path.glob(name)
    place.write_bytes(payload)
    read = {
        "config.yaml": folder.config,
        "run.json": folder.info,
        "scores.json": folder.scores,
        "card.json": folder.card,
        "checkpoints/*24.json": lambda: newest_intact(folder.checkpoints, warn=_refuse),
    }
    with pytest.raises(BadInput) as caught:
        read[name]()
    assert place.stem in str(caught.value)
    assert "\n" not in str(caught.value)


def _refuse(line):
    raise BadInput(line)


def test_a_pickle_in_place_of_metrics_is_refused(folder, payload):
    (folder.path / "metrics.jsonl").write_bytes(payload + b"\n")
    with pytest.raises(BadInput, match=r"metrics.jsonl is damaged in line 1"):
        folder.metrics()


@pytest.mark.parametrize("line", ["[]", "{}", '{"step": "1"}', "3"])
def test_metrics_without_a_step_are_refused(folder, line):
    (folder.path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(BadInput, match=r"metrics.jsonl is damaged in line 1: it has no step"):
        folder.forget_after(3)


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.mkdir [{}]", "!!python/name:os.mkdir", "!!python/module:os"])
def test_yaml_that_names_code_is_refused(folder, hacked, capsys, tmp_path, tag):
    evil = f"task: {tag.format(hacked)}\n"
    (tmp_path / "evil.yaml").write_text(evil)
    assert "evil.yaml is not valid YAML" in refused(capsys, "run", tmp_path / "evil.yaml", "--out", tmp_path / "out")
    (folder.path / "config.yaml").write_text(evil)
    assert "config.yaml is not valid YAML" in refused(capsys, "eval", folder.path, "--lengths", "4")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "facts",
    [
        {"step": "../../elsewhere/step-1"},
        {"step": 25},
        {"step": True},
        {"step": None},
        {"score": "best"},
        [],
        "step-1",
        {"step": 24.0},
    ],
)
def test_a_record_that_leads_elsewhere_is_damaged(folder, facts):
    record = list_checkpoints(folder.checkpoints)[-1].path.with_suffix(".json")
    true = json.loads(record.read_text())
    record.write_text(json.dumps({**true, **facts} if isinstance(facts, dict) else facts))
    said = []
    kept = newest_intact(folder.checkpoints, said.append)
    assert kept.step == 20
    assert kept.path.parent == folder.checkpoints
    assert "step-00000024.safetensors is damaged" in said[0]


def test_a_record_that_nests_without_end_is_damaged(folder):
    list_checkpoints(folder.checkpoints)[-1].path.with_suffix(".json").write_text("[" * 100_000)
    assert newest_intact(folder.checkpoints, warn=lambda line: None).step == 20


def test_a_checkpoint_that_is_a_link_is_replaced_and_not_followed(folder, tmp_path):
    """What is saved or pruned never touches the file that a link leads to."""
    newest = list_checkpoints(folder.checkpoints)[-1].path
    treasure = tmp_path / "treasure"
    treasure.write_bytes(b"untouched")
    for path in (newest, newest.with_suffix(".json"), folder.path / "scores.json"):
        path.unlink()
        path.symlink_to(treasure)
    (folder.path / "scores.json").unlink()
    execute_in(folder.path, CONFIG, resume=True)
    assert treasure.read_bytes() == b"untouched"
    assert folder.finished


@pytest.mark.parametrize("variant", ["../x", "..", ".", "/tmp/x", "a/b", "a\\b", "x\0"])
def test_a_variant_that_is_no_folder_name_is_refused(variant):
    with pytest.raises(BadInput, match="a variant's name becomes a folder"):
        parse_recipe("r", {"task": "copy", "variants": {variant: {}}}, {})
