"""The Python interface: every name is visible and typed, and every verb takes and returns Python values."""

import ast
import inspect
import io
import json
import pkgutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

import pytest
from mypy import api as mypy
from rich.console import Console

import longreach as lr
import longreach.api
from longreach.cli.main import main
from longreach.config.registry import entries
from longreach.errors import argument, naming_flags
from longreach.terminal import console
from longreach.verbs.progress import bars

SOURCE = Path(longreach.__file__).parent
VERBS = ("run", "evaluate", "predict", "show", "dataset", "export", "check", "report", "inspect", "diagnose", "sweep")
VERBS += ("reach", "extend")
TINY = {
    "task": "copy",
    "model": {"layers": 1, "width": 16, "heads": 2},
    "train": {"lengths": (1, 6), "steps": 3, "batch_size": 4},
    "evaluate": {"lengths": [4, 8], "samples": 4, "free_samples": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three steps."""
    path = tmp_path_factory.mktemp("api") / "run"
    lr.run(**TINY, out=path, device="cpu")
    return path


def in_python(script):
    """The output of a script in a process of its own."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def public_classes():
    """Module and line of every class with a public name, by name."""
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    return found


# names


def test_all_names_are_seen_by_dir_and_by_star():
    assert [name for name in dir(lr) if not name.startswith("_")] == sorted(lr.__all__)
    assert lr.__all__ == longreach.api.__all__
    assert len(set(lr.__all__)) == len(lr.__all__)
    assert set(VERBS) <= set(lr.__all__)
    for name in lr.__all__:
        assert getattr(lr, name) is getattr(longreach.api, name)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    for name in ("rnu", "Path", "_private"):
        with pytest.raises(AttributeError, match=f"module 'longreach' has no attribute '{name}'"):
            getattr(lr, name)


def test_type_checkers_see_the_names_and_their_types(tmp_path):
    script = tmp_path / "script.py"
    lines = ["import longreach as lr", 'lr.run(task="copy", train={"lengths": (1, 6)}, out="a")']
    lines += ["lr.run(task=3)", 'lr.evaluate("a", samples="many")', "lr.Span(1, 2).middle", "lr.rnu"]
    lines += [f"reveal_type(lr.{name})" for name in lr.__all__]
    script.write_text("\n".join(lines) + "\n")
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--cache-dir", str(tmp_path / "cache")]
    out, err, _ = mypy.run([*options, "--config-file", "", str(script)])
    assert not err
    told = defaultdict(list)
    for line in out.splitlines():
        assert line.startswith(str(script)), line
        told[int(line.removeprefix(f"{script}:").split(":")[0])].append(line)
    assert 2 not in told
    assert 'Argument "task" to "run" has incompatible type "int"' in told[3][0]
    assert 'Argument "samples" to "evaluate" has incompatible type "str"' in told[4][0]
    assert '"Span" has no attribute "middle"' in told[5][0]
    assert 'Module has no attribute "rnu"' in told[6][0]
    for number, name in enumerate(lr.__all__, start=7):
        (line,) = told[number]
        assert "Revealed type is" in line, name
        assert 'is "Any"' not in line, name


def test_importing_the_package_is_cheap_and_reads_nothing():
    script = "import sys; known = set(sys.modules); import longreach; print(*sorted(set(sys.modules) - known))"
    assert in_python(script) == "longreach"


def test_the_verbs_stay_what_they_are_after_all_submodules_are_imported():
    script = """
    import importlib, pkgutil
    import longreach as lr

    before = {name: getattr(lr, name) for name in lr.__all__}
    for module in pkgutil.walk_packages(lr.__path__, "longreach."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError as error:  # an extra, or a GPU's library
                assert not (error.name or "").startswith("longreach"), error
    print(*(name for name in before if getattr(lr, name) is not before[name]))
    """
    assert in_python(script) == ""
    assert all(callable(getattr(lr, verb)) for verb in VERBS)


def test_no_package_has_the_name_of_a_public_function():
    packages = {module.name for module in pkgutil.iter_modules([str(SOURCE)])}
    assert not packages & set(lr.__all__)


def test_a_public_class_name_is_one_class():
    assert {name: places for name, places in public_classes().items() if len(places) > 1} == {}


@pytest.mark.parametrize("kind", ["model", "encoding", "attention", "position_head"])
def test_configurations_of_model_parts_end_in_config(kind):
    for cls in entries(kind).values():
        assert cls.__name__.endswith("Config")


def test_run_takes_every_section_of_a_configuration():
    assert {field.name for field in fields(lr.RunConfig)} <= set(inspect.signature(lr.run).parameters)


def test_list_does_not_load_the_benchmarks():
    script = """
    import contextlib, io, sys
    from longreach.cli.main import main
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["list", "task"]) == 0
    print(*(name for name in sys.modules if name.startswith("longreach.bench")))
    """
    assert in_python(script) == ""


def test_a_task_without_a_measured_speed_is_listed(monkeypatch, capsys):
    monkeypatch.setattr("longreach.cli.catalogue.measured_speeds", lambda: {"copy": 3e6})
    assert main(["list", "task", "--json"]) == 0
    speeds = {row["name"]: row["tokens_per_second"] for row in json.loads(capsys.readouterr().out)["task"]}
    assert speeds["copy"] == 3e6
    assert speeds["parity"] is None
    assert main(["list", "task"]) == 0


# verbs


def test_run_takes_what_a_recipe_takes(folder, tmp_path):
    config = lr.RunConfig(
        task=lr.Copy(),
        model=lr.TransformerConfig(layers=1, width=16, heads=2),
        train=lr.TrainConfig(lengths=lr.Span(1, 6), steps=3, batch_size=4),
        evaluate=lr.EvalConfig(lengths=lr.Lengths((4, 8)), samples=4, free_samples=2),
    )
    assert lr.run(config, tmp_path / "run", device="cpu") == lr.RunFolder(folder).scores()
    assert lr.RunFolder(tmp_path / "run").config() == lr.RunFolder(folder).config()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "task is missing"),
        ({"task": "cpoy"}, "task: unknown task 'cpoy'; did you mean copy"),
        ({"task": "copy", "train": {"lengths": (6, 1)}}, "train.lengths: a range must not fall: 6..1"),
        ({"task": "copy", "train": {"stesp": 3}}, "train.stesp: unknown key; did you mean steps"),
        ({"task": "copy", "model": "gpt"}, "model: unknown model 'gpt'"),
        ({"config": lr.RunConfig(task=lr.Copy()), "task": "copy"}, "config is the whole configuration: leave out task"),
        ({"task": "copy", "out": None}, "out is missing"),
    ],
)
def test_mistakes_are_one_line_that_names_the_argument(tmp_path, arguments, line):
    with pytest.raises(lr.BadInput) as error:
        lr.run(**{"out": tmp_path / "run", "device": "cpu", **arguments})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_python_errors_name_no_flags(folder, tmp_path):
    mistakes = [
        lambda: lr.run(**TINY, out=folder, device="cpu"),
        lambda: lr.run(**{**TINY, "task": "parity"}, out=folder, device="cpu", resume=True),
        lambda: lr.evaluate(folder, lengths="x"),
        lambda: lr.evaluate(folder, samples=2, free_samples=3),
        lambda: lr.evaluate(folder, prompt_ids_only=True),
        lambda: lr.evaluate(folder, smaples=2),
        lambda: lr.predict(folder, "0 1 2", max_tokens=0),
        lambda: lr.predict(folder, "0 1 2", seed=3),
        lambda: lr.inspect(folder, length=3, prompt="0"),
        lambda: lr.inspect(folder, seed=3, prompt="0"),
        lambda: lr.inspect(folder, out=tmp_path / "a.txt"),
        lambda: lr.inspect(folder, samples=3),
        lambda: lr.inspect(folder, prompt=["0", "1"]),
        lambda: lr.inspect(folder, prompt=[]),
        lambda: lr.inspect(folder, out=tmp_path / "none" / "a.png"),
        lambda: lr.inspect(folder, step=99),
        lambda: lr.show("copy", 10**12),
        lambda: lr.dataset("copy", "4..2", tmp_path / "a.jsonl"),
        lambda: lr.dataset("copy", 4, tmp_path / "a.jsonl", samples=0),
        lambda: lr.diagnose("copy"),
        lambda: lr.diagnose("copy", train=(8, 1)),
        lambda: lr.diagnose("copy", train=(1, 8), target=3),
        lambda: lr.diagnose("copy", train=(1, 8), samples=3),
        lambda: lr.diagnose("copy", train=(1, 8), steps=3),
        lambda: lr.diagnose(folder, train=(1, 8)),
        lambda: lr.report(tmp_path),
        lambda: lr.report(),
        lambda: lr.sweep(tmp_path / "none.yaml"),
        lambda: lr.sweep(tmp_path / "none.yaml", address="auto"),
        lambda: lr.sweep(tmp_path / "none.yaml", workers=0),
    ]
    for mistake in mistakes:
        with pytest.raises(lr.BadInput) as error:
            mistake()
        for line in error.value.lines:
            assert "--" not in line
            assert "evaluate." not in line
            assert "\n" not in line


def test_arguments_are_named_as_they_were_given():
    assert [argument("max_tokens"), argument("resume", True), argument("stack", 2)] == [
        "max_tokens",
        "resume=True",
        "stack=2",
    ]
    with naming_flags():
        assert [argument("max_tokens"), argument("resume", True), argument("stack", 2)] == [
            "--max-tokens",
            "--resume",
            "--stack 2",
        ]
    assert argument("out") == "out"


def test_a_run_folder_and_a_loaded_model_are_evaluated_alike(folder, tmp_path, capsys):
    scores = lr.evaluate(folder, lengths=(3, 5), samples=8, device="cpu")
    assert {score.length for score in scores} == {3, 5}
    assert lr.evaluate(lr.load_model(lr.RunFolder(folder)), lengths="3,5", samples=8) == scores
    (result,) = lr.evaluate_runs(folder.parent, lengths=(3, 5), samples=8, device="cpu")
    assert result.scores == scores
    flags = ["--lengths", "3,5", "--samples", "8", "--device", "cpu", "--out", str(tmp_path / "scores.json")]
    assert main(["eval", str(folder), *flags]) == 0
    rows = json.loads((tmp_path / "scores.json").read_text())
    assert [(row["length"], row["metric"], row["hits"]) for row in rows] == [
        (score.length, score.metric, score.hits) for score in scores
    ]


def test_predict_answers(folder, capsys):
    answer = lr.predict(folder, lr.show("copy", 3).prompt, device="cpu")
    assert main(["predict", str(folder), "--prompt", answer.prompt, "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == answer.answer == str(answer)
    assert lr.predict(lr.load_model(lr.RunFolder(folder)), answer.prompt) == answer
    assert answer.expected is not None


def test_show_returns_a_sample(capsys):
    sample = lr.show({"name": "sparse_parity", "k": (2, 2)}, 8, seed=3)
    assert sample == lr.show(lr.SparseParity(k=lr.Span(2, 2)), 8, seed=3)
    assert main(["show", "sparse_parity", "--task.k", "2..2", "--length", "8", "--seed", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tokens"] == sample.tokens
    assert printed["depends_on"] == {str(index): places for index, places in sample.depends_on.items()}
    assert str(sample) == f"{sample.prompt}  ->  {' '.join(sample.answer)}"


def test_inspect_looks_inside(folder, tmp_path):
    found = lr.inspect(folder, length=4, step=0, out=tmp_path / "heads.png", device="cpu")
    assert found.inside.prompt_tokens < len(found.inside.words)
    assert found.detail.step == 0
    assert (tmp_path / "heads.png").stat().st_size > 0
    assert len(lr.inspect(folder, length=4, samples=2, out=tmp_path / "page.html").samples) == 2
    assert lr.inspect(folder, prompt=" ".join(found.inside.words[: found.inside.prompt_tokens])).detail is None


def test_report_returns_its_paths(folder, tmp_path):
    written = lr.report(folder, out=tmp_path / "report")
    assert written.html.is_file()
    assert written.png.is_file()


def test_diagnose_returns_its_findings(folder, tmp_path):
    found = lr.diagnose("copy", train=(1, 8), target=20, samples=32, out=tmp_path)
    assert found.target == 20
    assert json.loads((tmp_path / "diagnosis.json").read_text())["target"] == 20
    assert lr.diagnose(lr.Copy(), train="1..8", target=20, samples=32) == found


def test_sweep_returns_the_state_of_every_run(tmp_path, capfd):
    file = tmp_path / "sweep.yaml"
    settings = {**TINY, "train": {**TINY["train"], "lengths": "1..6"}, "grid": {"model.layers": [1, 2]}}
    file.write_text(json.dumps({**settings, "resources": {"cpus": 1}}))
    states = lr.sweep(file, out=tmp_path / "out", device="cpu", workers=1)
    assert [state.state for state in states] == ["finished", "finished"]
    assert lr.sweep(file, out=tmp_path / "out", device="cpu") == states
    assert capfd.readouterr().out == ""


def test_progress_is_shown_on_a_terminal_only(tmp_path, monkeypatch, capfd):
    drawn = io.StringIO()
    monkeypatch.setattr("longreach.verbs.progress.say", Console(file=drawn, force_terminal=True, width=100))
    lr.run(**TINY, out=tmp_path / "loud", device="cpu")
    assert "train" in drawn.getvalue()
    length = len(drawn.getvalue())
    lr.run(**TINY, out=tmp_path / "quiet", device="cpu", progress=False)
    assert len(drawn.getvalue()) == length
    monkeypatch.setattr("longreach.verbs.progress.say", console.say)
    capfd.readouterr()
    lr.run(**TINY, out=tmp_path / "file", device="cpu")
    assert capfd.readouterr() == ("", "")
    with bars(progress=False)() as observer:
        observer.say("silent")
    assert capfd.readouterr() == ("", "")
