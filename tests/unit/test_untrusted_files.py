"""Nothing that is read executes code, and nothing in a file leads out of its folder."""

import hashlib
import html
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from helpers import execute_in, page_data
from probes import probed
from safetensors.torch import load, save
from test_runs import CONFIG

import longreach.system.imports
from longreach.cli.main import main
from longreach.config import dump_yaml, to_plain
from longreach.config.registry import lookup
from longreach.errors import BadInput, RunFailed
from longreach.runs import RunFolder, execute, gather_info, load_model, parse_recipe, refuse_other_config
from longreach.sweeps.order import Order
from longreach.sweeps.process import JobProcess
from longreach.system.imports import RunOrigin, names_of_run
from longreach.training import list_checkpoints, newest_intact


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
    capsys.readouterr()
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
@pytest.mark.parametrize("name", ["run.json", "scores.json", "card.json"])
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


METRICS = ['{"step": 1, "loss": "x"}', '{"step": 1, "loss": [1]}', '{"step": true}', "[" * 100_000, *NONSENSE.values()]


@pytest.mark.parametrize("line", METRICS, ids=range(len(METRICS)))
def test_a_report_goes_on_without_damaged_metrics(folder, capsys, line):
    path = folder.path / "metrics.jsonl"
    path.write_bytes((line.encode() if isinstance(line, str) else line or b" ") + b"\n")
    capsys.readouterr()
    assert main(["report", str(folder.path), "--out", str(folder.path / "report")]) == 0
    (told_line,) = capsys.readouterr().err.splitlines()
    assert f"{path} is damaged in line 1" in told_line
    assert page_data(folder.path / "report" / "report.html")["problems"] == [told_line]


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
    assert f"<h1>{html.escape(name, quote=False)}</h1>" in page.replace("&#34;", '"')
    assert page_data(folder.path / "report" / "report.html")["variants"][0]["name"] == name


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


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder; modules that are imported from it are forgotten afterwards."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(longreach.system.imports, "_working_folder", None)
    monkeypatch.setattr(longreach.system.imports, "_place_of", {})
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
    for name in ("mailed", "own"):
        sys.modules.pop(name, None)


def write_code(path, hacked=None):
    """A module with a task; importing it makes the folder `hacked`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    trap = "" if hacked is None else f"import os\nos.mkdir({str(hacked)!r})\n"
    path.write_text(
        f"{trap}from dataclasses import dataclass\nfrom longreach.tasks import ParityScratchpad\n"
        "@dataclass(frozen=True)\nclass X(ParityScratchpad):\n    pass\n"
    )


def rename_task(run, name, **evaluate):
    """Let a run's configuration name another task, as an editor would."""
    path = run / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["task"]["name"] = name
    config["evaluate"] |= evaluate
    path.write_text(yaml.safe_dump(config))


VERBS = {
    "eval": ["eval", "RUN", "--lengths", "4"],
    "eval to a table": ["eval", "RUN", "--lengths", "4", "--out", "x.csv"],
    "predict": ["predict", "RUN", "--prompt", "1 0"],
    "inspect": ["inspect", "RUN"],
    "export": ["export", "RUN", "exported"],
    "compare": ["theory", "compare", "RUN"],
    "diagnose": ["diagnose", "RUN"],
    "probe": ["probe", "RUN", "text.txt"],
    "sparsity": ["text", "sparsity", "RUN", "CORPUS", "--contexts", "96", "--within", "96", "--out", "sparsity"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_mailed_run_imports_nothing_from_the_working_folder(trained, corpus, here, hacked, capsys, verb):
    run = shutil.copytree(trained.path, here / "mailed")
    rename_task(run, "mailed.payload.X")
    write_code(run / "payload.py", hacked)
    (here / "text.txt").write_text("1 0 1")
    words = {"RUN": "mailed", "CORPUS": corpus}
    line = refused(capsys, *(words.get(word, word) for word in VERBS[verb]))
    assert "mailed/config.yaml names the task mailed.payload.X, which is not installed: add --trust" in line


@pytest.mark.parametrize("axes", [{"name": ["mailed.payload.X"]}, {"k": [1], "name": ["mailed.payload.X"]}])
def test_the_axes_of_a_mailed_run_import_nothing_either(trained, here, hacked, capsys, axes):
    run = shutil.copytree(trained.path, here / "mailed")
    config = yaml.safe_load((run / "config.yaml").read_text())
    rename_task(run, config["task"]["name"], axes=axes)
    write_code(run / "payload.py", hacked)
    assert main(["eval", "mailed", "--lengths", "4"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_mailed_run_imports_code_with_trust(trained, here, capsys):
    run = shutil.copytree(trained.path, here / "mailed")
    rename_task(run, "mailed.payload.X")
    write_code(run / "payload.py", here / "imported")
    assert main(["predict", "mailed", "--prompt", "1 0", "--trust"]) == 0
    assert (here / "imported").is_dir()
    assert type(load_model(RunFolder(run), trust=True)[0].task).__module__ == "mailed.payload"


def test_a_run_folder_does_not_reach_modules_of_python(trained, here):
    """Importing `antigravity` opens a browser; `pip.__main__` is a program."""
    run = shutil.copytree(trained.path, here / "mailed")
    for name in ("antigravity.X", "idlelib.idle.X", "pytest.__main__.X"):
        rename_task(run, name)
        with pytest.raises(BadInput, match="which is not installed"):
            RunFolder(run).config()
        assert name.rpartition(".")[0] not in sys.modules


def test_a_folder_on_the_path_that_holds_the_run_is_not_an_installed_package(trained, here, hacked, monkeypatch):
    run = shutil.copytree(trained.path, here / "unpacked" / "mailed")
    rename_task(run, "mailed.payload.X")
    write_code(run / "payload.py", hacked)
    monkeypatch.syspath_prepend(str(run.parent))
    with pytest.raises(BadInput, match="which is not installed"):
        RunFolder(run).config()


def test_a_package_that_lies_in_two_places_does_not_lead_to_the_working_folder(trained, here, hacked, monkeypatch):
    """A package without __init__.py is the union of the folders of its name along the path."""
    run = shutil.copytree(trained.path, here / "run")
    rename_task(run, "mailed.payload.X")
    write_code(here / "mailed" / "payload.py", hacked)
    (here.parent / "site" / "mailed").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(here.parent / "site"))
    sys.path.append(str(here))
    with pytest.raises(BadInput, match="cannot import task"):
        RunFolder(run).config()


def test_a_run_folder_may_name_an_installed_class(trained, here, monkeypatch):
    run = shutil.copytree(trained.path, here / "mailed")
    rename_task(run, "own_package.tasks.X")
    write_code(here.parent / "site" / "own_package" / "tasks.py")
    monkeypatch.syspath_prepend(str(here.parent / "site"))
    assert type(RunFolder(run).config().task).__name__ == "X"


@pytest.fixture
def own_run(here):
    """A run of this user's, with a task beside its recipe."""
    write_code(here / "own" / "task.py")
    plain = to_plain(CONFIG)
    plain["task"]["name"] = "own.task.X"
    (here / "recipe.yaml").write_text(yaml.safe_dump(plain))
    longreach.system.imports.allow_working_folder()
    recipe = parse_recipe("recipe", plain, {})
    return execute_in(here / "run", recipe.variants[""])


def forget_own():
    """As another process starts."""
    for name in ("own.task", "own"):
        sys.modules.pop(name, None)
    sys.path[:] = [entry for entry in sys.path if Path(entry).name != "here"]
    longreach.system.imports._working_folder = None
    longreach.system.imports._place_of.clear()


def test_a_run_of_ones_own_is_read_from_anywhere_even_moved(own_run, here, tmp_path, monkeypatch, capsys):
    forget_own()
    moved = Path(shutil.move(own_run.path, tmp_path / "moved"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["predict", str(moved), "--prompt", "1 0"]) == 0
    assert Path(sys.modules["own.task"].__file__) == here / "own" / "task.py"


def test_a_signature_holds_for_its_user_its_configuration_and_its_places_only(own_run, here, tmp_path, monkeypatch):
    record = own_run.path / "run.json"
    written = record.read_text()
    config = (own_run.path / "config.yaml").read_text()

    def is_refused():
        forget_own()
        with pytest.raises(BadInput, match=r"own.task.X, which is not installed: add trust=True"):
            own_run.config()

    for change in (
        {"places": {"own.task.X": str(tmp_path)}},
        {"signature": ""},
        {"signature": None},
        {"signature": "é"},
        {"places": []},
    ):
        record.write_text(json.dumps({**json.loads(written), **change}))
        is_refused()
    record.write_text(written)
    (own_run.path / "config.yaml").write_text(config.replace("steps: 24", "steps: 25"))
    is_refused()
    (own_run.path / "config.yaml").write_text(config)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    is_refused()
    monkeypatch.undo()
    record.unlink()
    is_refused()


def test_the_key_is_private_and_outside_the_run(own_run):
    key = Path(os.environ["XDG_STATE_HOME"]) / "longreach" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes().hex() not in (own_run.path / "run.json").read_text()


def test_a_key_that_cannot_be_kept_is_said_and_the_run_goes_on(here, tmp_path, monkeypatch):
    write_code(here / "own" / "task.py")
    longreach.system.imports.allow_working_folder()
    plain = to_plain(CONFIG)
    plain["task"]["name"] = "own.task.X"
    config = parse_recipe("recipe", plain, {}).variants[""]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    said = []
    observer = longreach.runs.Observer(say=said.append)
    assert execute_in(here / "run", config, observer=observer).finished
    assert "will need trust=True" in said[0]


def test_a_resumed_run_of_ones_own_is_signed_again(own_run):
    record = own_run.path / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "signature": "", "places": {}}))
    (own_run.path / "scores.json").unlink()
    execute_in(own_run.path, own_run.config(), resume=True)
    forget_own()
    assert type(own_run.config().task).__module__ == "own.task"


@pytest.mark.parametrize("signed_before", [False, True], ids=["by the run", "by a sweep"])
def test_a_run_of_ones_own_that_goes_on_with_another_execution_is_signed_again(own_run, signed_before):
    (own_run.path / "scores.json").unlink()
    config = own_run.config()
    changed = replace(config, execution=replace(config.execution, batch_tokens=50))
    info = gather_info("test", "", "", 0, "cpu")
    if signed_before:
        info = replace(info, **own_run.sign_places(changed))
    execute(changed, own_run, info, "cpu", resume=True)
    forget_own()
    assert own_run.config().execution.batch_tokens == 50
    assert type(own_run.config().task).__module__ == "own.task"


def test_runs_with_modules_of_the_same_name_are_not_mixed(own_run, here, tmp_path):
    other = shutil.copytree(own_run.path, tmp_path / "other")
    forget_own()
    write_code(tmp_path / "there" / "own" / "task.py")
    places = {"own.task.X": str(tmp_path / "there")}
    signature = longreach.runs.origin.sign((other / "config.yaml").read_bytes(), places)
    record = {**json.loads((other / "run.json").read_text()), "places": places, "signature": signature}
    (other / "run.json").write_text(json.dumps(record))
    own_run.config()
    with pytest.raises(BadInput, match="read them one at a time"):
        RunFolder(other).config()


def test_another_class_is_refused_before_it_is_imported_when_a_run_goes_on(trained, here, hacked):
    run = shutil.copytree(trained.path, here / "mailed")
    rename_task(run, "mailed.payload.X")
    write_code(run / "payload.py", hacked)
    with pytest.raises(BadInput, match=r"was started with task.name=mailed.payload.X, now asked for"):
        refuse_other_config(RunFolder(run), CONFIG)


def test_a_command_finds_classes_in_the_working_folder_after_all_others(here, capsys):
    write_code(here / "own" / "task.py")
    assert main(["show", "own.task.X", "--length", "4"]) == 0
    assert sys.path[-1] == str(here)
    # what the command line allows, a run folder still does not
    write_code(here / "own" / "other.py", here / "never")
    with names_of_run(RunOrigin(here / "run", dict)), pytest.raises(BadInput, match="not installed"):
        lookup("task", "own.other.X")


SHADOWS = ("typing", "argparse", "pathlib", "yaml", "torch", "numpy", "rich", "pyarrow", "docstring_parser", "json")


def shadow(folder, *more):
    for name in (*SHADOWS, *more):
        (folder / f"{name}.py").write_text(f"import os\nos.mkdir('shadowed by {name}')\nraise SystemExit(9)\n")


def source_path():
    return str(Path(longreach.__file__).parents[1])


@pytest.mark.parametrize("way", ["module", "script"])
def test_a_file_in_the_working_folder_stands_in_for_no_module(here, tmp_path, way):
    shadow(here)
    write_code(here / "own" / "task.py")
    command = [sys.executable, "-m", "longreach"]
    if way == "script":
        (tmp_path / "bin").mkdir()
        script = tmp_path / "bin" / "longreach"
        script.write_text("import sys\nfrom longreach.cli.main import main\nsys.exit(main())\n")
        command = [sys.executable, str(script)]
    environment = {**os.environ, "PYTHONPATH": source_path()}
    command += ["show", "own.task.X", "--length", "4"]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list(here.glob("shadowed*"))


def test_a_file_in_the_working_folder_stands_in_for_no_module_of_a_sweeps_job(here, monkeypatch):
    shadow(here)
    monkeypatch.setenv("PYTHONPATH", source_path())
    order = Order("r", "t", [""], [{"task": "nothing"}], [0], [str(here / "out")], threads=1)
    outcome = JobProcess(order, folder=str(here)).outcome(60.0)
    assert outcome.reason.startswith("task: unknown task 'nothing'")
    assert not list(here.glob("shadowed*"))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["torchrun", "ray"])
def test_a_file_in_the_working_folder_stands_in_for_no_module_of_other_processes(here, way):
    """torchrun starts the ranks of a run, Ray the workers that keep the jobs of a sweep."""
    if way == "ray":
        pytest.importorskip("ray")
        shadow(here, "ray", "filelock")
        command = ["-m", "longreach", "sweep", "run", "tiny.yaml", "--backend", "ray", "--workers", "1"]
    else:
        shadow(here)
        # as the script torchrun does: `python -m torch.distributed.run` alone would itself import ./torch.py
        command = ["-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["-m", "longreach", "run", "tiny.yaml"]
    (here / "tiny.yaml").write_text(dump_yaml(to_plain(CONFIG)))
    environment = {**os.environ, "PYTHONPATH": source_path(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *command, "--device", "cpu", "--out", "out"]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(list(here.glob("out/**/scores.json"))) == 1
    assert not list(here.glob("shadowed*"))


def test_processes_that_a_command_starts_do_not_search_the_working_folder_first(here):
    (here / "random.py").write_text("raise SystemExit(9)")
    code = (
        "import subprocess, sys; from longreach.system.imports import own_the_process; own_the_process();"
        "sys.exit(subprocess.run([sys.executable, '-c', 'import random']).returncode)"
    )
    environment = {**os.environ, "PYTHONPATH": source_path()}
    assert subprocess.run([sys.executable, "-P", "-c", code], cwd=here, env=environment).returncode == 0


@pytest.fixture
def foreign(tmp_path, hacked):
    """A model folder with code of its own."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(hacked)!r})\n")
    (folder / "config.json").write_text(
        json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}})
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.T", None]}}))
    return folder


def type_in(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.parametrize("where", ["tokenizer", "model"])
def test_code_of_a_model_folder_never_runs(foreign, tmp_path, monkeypatch, capsys, where):
    pytest.importorskip("transformers")
    if where == "model":
        tokenizer_into(foreign)
    type_in(monkeypatch, "y\ny\nsome text")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    line = refused(capsys, "probe", foreign, "-")
    assert f"{foreign} can be loaded only by running code of its own, which longreach never does" in line


def test_code_of_a_tokenizer_never_runs(foreign, tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    (tmp_path / "text.txt").write_text("some text")
    type_in(monkeypatch, "y\n")
    command = ["text", "prepare", tmp_path / "text.txt", "--tokenizer", foreign, "--out", tmp_path / "corpus"]
    assert "which longreach never does" in refused(capsys, *command)


def tokenizer_into(folder):
    from longreach.text import as_subwords
    from longreach.text.tokenizer import Bytes

    as_subwords(Bytes()).save(folder)


def test_pickled_weights_of_a_model_folder_are_not_unpickled(tmp_path, hacked, monkeypatch, capsys):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "model"
    settings = {"vocab_size": 258, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**settings, num_attention_heads=2, num_key_value_heads=2)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer_into(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": _Payload(hacked)}, folder / "pytorch_model.bin")
    type_in(monkeypatch, "some text")
    assert f"cannot load {folder}" in refused(capsys, "probe", folder, "-")


def test_scripts_of_a_dataset_are_not_asked_for(monkeypatch):
    from types import SimpleNamespace

    from longreach.text.documents import _hugging_face

    def load_dataset(path, name=None, split=None, streaming=False, trust_remote_code=None):
        assert trust_remote_code is False
        raise ValueError("the repository holds code: pass trust_remote_code=True")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(BadInput, match="which longreach never does"):
        next(_hugging_face("hf:a/b", "text"))


def test_what_a_run_says_of_itself_is_text_in_the_page(folder, tmp_path):
    evil = "--><script>alert(1)</script><!-- \"onload='x'"
    record = folder.path / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "variant": evil, "title": evil, "commit": evil}))
    assert main(["report", str(folder.path), "--out", str(tmp_path / "report")]) == 0
    page = next((tmp_path / "report").glob("*.html")).read_text()
    assert "<script>alert" not in page
    assert "alert(1)" in page
