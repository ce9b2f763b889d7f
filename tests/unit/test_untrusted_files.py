"""Nothing that is read executes code, and nothing in a file leads out of its folder."""

import hashlib
import json
import os
import pickle
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import execute_in
from probes import probed
from safetensors.torch import load, save
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


DEEP, HUGE = b"[" * 100_000, b"9" * 5000
NONSENSE = {
    "a list": b"[]",
    "text": b'"x"',
    "empty": b"",
    "deep": DEEP,
    "a large number": b'{"seed": ' + HUGE + b"}",
    "not UTF-8": b"\xff\xfe{}",
    "half a character": b'{"title": "\\ud800"}',
    "nothing in it": b"{}",
}
SWAPS = {
    "run.json": [{"seed": "one"}, {"title": 3}, {"variant": None}, {"versions": []}, {"stack": {}}, {"unknown": 1}],
    "card.json": [{"trained_lengths": "long"}, {"trained_lengths": 3}, {"id_coverage": []}, {"id_coverage": [-1]}],
}
SCORES = [{"hits": -1}, {"samples": 0}, {"hits": 10**6}, {"length": "6"}, {"length": 0}, {"hits": None}, {"metric": 3}]
SCORES += [{"overrides": []}, {"metric": "first_error_tenth_x"}, {"seed": float("nan")}, {"unknown": 1}]


def told(capsys, path, *command):
    """The one line of a command that names a damaged file."""
    line = refused(capsys, *command)
    assert line.startswith("longreach: ")
    assert path.name in line
    assert len(line) < 1000
    return line


@pytest.mark.parametrize("content", NONSENSE)
@pytest.mark.parametrize("name", ["run.json", "scores.json", "card.json", "metrics.jsonl"])
def test_nonsense_in_place_of_a_record_is_one_line(folder, capsys, name, content):
    path = folder.path / name
    path.write_bytes((NONSENSE[content] or b" ") + b"\n")
    told(capsys, path, "report", folder.path, "--out", folder.path / "report")


@pytest.mark.parametrize(("name", "changes"), [(name, each) for name, swaps in SWAPS.items() for each in swaps])
def test_a_value_of_the_wrong_kind_is_one_line(folder, capsys, name, changes):
    path = folder.path / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    told(capsys, path, "report", folder.path, "--out", folder.path / "report")


@pytest.mark.parametrize("changes", SCORES, ids=str)
def test_counts_that_cannot_be_are_one_line(folder, capsys, changes):
    path = folder.path / "scores.json"
    first, *rest = json.loads(path.read_text())
    path.write_text(json.dumps([first | changes, *rest]))
    told(capsys, path, "report", folder.path, "--out", folder.path / "report")


@pytest.mark.parametrize(
    "line", ['{"step": 1, "loss": "x"}', '{"step": 1, "loss": [1]}', '{"step": true}', "[" * 100_000]
)
def test_metrics_that_are_no_numbers_are_one_line(folder, capsys, line):
    path = folder.path / "metrics.jsonl"
    path.write_text(line + "\n")
    assert "is damaged in line 1" in told(capsys, path, "report", folder.path, "--out", folder.path / "report")


PROBES = [{"pieces": 3}, {"pieces": ["a"]}, {"sizes": [0, "1"]}, {"sizes": [2, 1]}, {"settings": []}, {"cost": {}}]
PROBES += [{"title": 3}, {"unknown": 1}, {"settings": {"masks": "x"}}, {"format": "x"}]


@pytest.mark.parametrize("changes", PROBES, ids=str)
def test_a_damaged_probe_is_one_line(tmp_path, capsys, changes):
    probed().save(tmp_path)
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert "probe." in refused(capsys, "report", tmp_path, "--out", tmp_path / "report")


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": torch.zeros(3, 5)},
        {"weights": torch.full((3, 6), float("nan"))},
        {"targets": torch.tensor([3, 4, 9])},
        {"targets": torch.tensor([-3, 4, 5])},
        {"loss": torch.zeros(3, dtype=torch.long)},
        {"tokens": torch.zeros(())},
        {"unknown": torch.zeros(3)},
    ],
    ids=str,
)
def test_tensors_of_a_probe_that_do_not_fit_are_one_line(tmp_path, capsys, changes):
    probed().save(tmp_path)
    path = tmp_path / "probe.safetensors"
    path.write_bytes(save(load(path.read_bytes()) | changes))
    told(capsys, path, "report", tmp_path, "--out", tmp_path / "report")


META = [{"vocabulary": "x"}, {"splits": []}, {"splits": {}}, {"end": None}, {"sources": 3}, {"tokenizer": 5}]


@pytest.mark.parametrize("changes", META, ids=str)
def test_a_damaged_corpus_is_one_line(corpus, tmp_path, capsys, changes):
    folder = shutil.copytree(corpus, tmp_path / "corpus")
    path = folder / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    told(capsys, path, "text", "check", folder)
    path.write_bytes(DEEP)
    told(capsys, path, "text", "show", folder)


def test_an_index_that_is_damaged_inside_is_made_anew(folder, capsys):
    assert main(["results", str(folder.path), "--json"]) == 0
    whole = capsys.readouterr().out
    index = folder.path / ".longreach-index.parquet"
    table = pq.read_table(index)
    for name, value in (("settings", "[" * 9), ("settings", "3"), ("path", None), ("stamp", None)):
        column = table.column_names.index(name)
        pq.write_table(table.set_column(column, table.schema.field(name), pa.array([value], pa.string())), index)
        assert main(["results", str(folder.path), "--json"]) == 0
        assert capsys.readouterr().out == whole


STEER = "red \x1b[31m, title \x1b]0;gone\x07, back \r, C1 \x9b2J, mirrored \u202e"


@pytest.mark.parametrize("command", ["report", "eval", "results"])
def test_no_text_of_a_file_steers_the_terminal(folder, capsys, monkeypatch, command):
    path = folder.path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"title": STEER, "variant": STEER, "recipe": STEER}))
    out = ["--out", str(folder.path / "report")] if command == "report" else []
    lengths = ["--lengths", "3", "--samples", "4", "--device", "cpu"] if command == "eval" else []
    assert main([command, str(folder.path), *out, *lengths]) == 0
    written = "".join(capsys.readouterr())
    assert not set("\x1b\x07\r\x9b\u202e") & set(written)
    assert "\\x1b" in written


def test_no_name_of_a_file_steers_the_terminal(tmp_path, capsys):
    line = refused(capsys, "report", tmp_path / "\x1b[2J")
    assert "\x1b" not in line
    assert "\\x1b[2J" in line


def test_names_that_look_like_formulas_markup_or_html_are_names(folder, capsys):
    name = "pays $_$ [/bold] [red] <script>x</script> {{7*7}} \\$"
    for path, key in ((folder.path / "run.json", "title"), (folder.path / "run.json", "variant")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: name}))
    path = folder.path / "scores.json"
    scores = [score | {"overrides": {"$_$": "[/x]"}} for score in json.loads(path.read_text())]
    path.write_text(json.dumps(scores))
    assert main(["report", str(folder.path), "--out", str(folder.path / "report")]) == 0
    assert "pays $_$ [/bold] [red] <script>" in capsys.readouterr().out
    page = (folder.path / "report" / "report.html").read_text()
    assert "<script>x" not in page
    assert "pays $_$ [/bold] [red] &lt;script&gt;x" in page
    assert "49" not in page.partition("</h1>")[0]


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
