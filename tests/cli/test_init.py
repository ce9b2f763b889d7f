"""`longreach init`: every template runs as it is written."""

import shlex
from pathlib import Path

import pytest
from helpers import answer_of, draw

from longreach.api import Task
from longreach.cli.main import main
from longreach.config import build_part
from longreach.runs import check, load_recipe

SHORT = ["--train.steps", "2", "--train.batch_size", "4", "--execution.save_every", "2", "--evaluate.samples", "2"]
SHORT += ["--evaluate.free_samples", "2", "--evaluate.lengths", "4", "--device", "cpu"]
SHORTER = {"run": SHORT, "check": ["--samples", "64"]}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("longreach.evaluation.card._SAMPLES", 8)  # drawn in Python, under checks of every type


def _init(capsys, *arguments):
    """Return the commands that are printed."""
    assert main(["init", *arguments]) == 0
    first, *commands = capsys.readouterr().out.splitlines()
    assert first.endswith(" is written.  Next:")
    return [shlex.split(command) for command in commands]


def _run(commands, capsys):
    for command in commands:
        verb, *arguments = command[1:]
        assert main([verb, *arguments, *SHORTER.get(verb, [])]) == 0, shlex.join(command)
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["task", "program", "example"])
def test_a_task_is_shown_and_trained_at_once(kind, capsys):
    commands = _init(capsys, kind, f"tried_{kind}")
    path = f"tried_{kind}.Tried{kind.capitalize()}"
    assert [command[:3] for command in commands] == [
        ["longreach", "show", path],
        ["longreach", "check", path],
        ["longreach", "init", "recipe"],
        ["longreach", "run", f"tried_{kind}.yaml"],
    ]
    commands[3] += ["--only", "ppc"] if kind != "task" else []
    assert "ppc" in _run(commands, capsys)
    assert (Path(f"runs/tried_{kind}/sequential/seed-0/scores.json").is_file()) == (kind == "task")
    text = Path(f"tried_{kind}.py").read_text()
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 120
    task = build_part(Task, path, "task")
    sample = draw(task, [1, 5, 8])
    assert [task.solve(sample, row) for row in range(3)] == [answer_of(sample, row) for row in range(3)]


@pytest.mark.parametrize("name", ["task", "program"])
def test_a_step_shares_an_id_with_what_it_reads(name, capsys):
    _init(capsys, name, f"aligned_{name}")
    task = build_part(Task, f"aligned_{name}.Aligned{name.capitalize()}", "task")
    sample = draw(task, [6])
    ids, needs = task.coupling(sample, "aligned")[0], task.depends_on(sample)[0]
    for index in range(int(sample.prompt_tokens[0]), int(sample.num_tokens[0])):
        read = needs[index].nonzero()[:, 0].tolist()
        assert len(read) == task.sparsity(6)
        for place in read:
            assert any(level[place] == level[index - 1] != 0 for level in ids)


@pytest.mark.parametrize(("task", "variant"), [(None, "ppc"), ("majority", "pose"), ("minesweeper", "ppc")])
def test_a_recipe_can_start(task, variant, capsys):
    commands = _init(capsys, "recipe", "mine", *(["--task", task] if task else []))
    assert commands[0] == ["longreach", "run", "mine.yaml"]
    assert commands[1][:2] == ["longreach", "inspect"]
    recipe = load_recipe("mine.yaml")
    assert list(recipe.variants) == ["sequential", variant]
    for config in recipe.variants.values():
        check(config)
        assert config.task.name == (task or "repeat_copy")
        assert config.task.max_tokens(config.train.lengths.high) <= 64
        assert max(config.evaluate.lengths) > config.train.lengths.high in config.evaluate.lengths
    if task == "majority":
        _run(commands, capsys)


def test_lengths_are_those_that_a_task_has(capsys):
    _init(capsys, "recipe", "flips", "--task", "flip_flop")
    config = load_recipe("flips.yaml").variants["pose"]
    assert config.train.lengths.low == 2
    for length in config.evaluate.lengths:
        config.task.check_length(length)


def test_a_file_elsewhere_is_tried_from_its_folder(capsys):
    Path("my tasks").mkdir()
    commands = _init(capsys, "task", "my_copy", "--out", "my tasks/other.py")
    assert commands[:2] == [["cd", "my tasks"], ["longreach", "show", "other.MyCopy", "--length", "5"]]
    assert "class MyCopy(" in Path("my tasks/other.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["taks", "a"], "init writes task, example, program, recipe, got 'taks'; did you mean task?"),
        (["task", "my-copy"], "letters, digits and _, as in Python, got 'my-copy'"),
        (["task", "class"], "got 'class'"),
        (["task", "_"], "got '_'"),
        (["task", "_1"], "got '_1'"),
        (["recipe", "1st"], "got '1st'"),
        (["task", "torch"], "torch is an installed module"),
        (["task", "__main__"], "__main__ is an installed module"),
        (["task", "a", "--out", "a.txt"], "--out must end in .py, got a.txt"),
        (["recipe", "a", "--out", "a.py"], "--out must end in .yaml, got a.py"),
        (["task", "a", "--out", "a-b.py"], "must be named as a Python module, got a-b.py"),
        (["task", "a", "--out", "none/a.py"], "there is no folder none for --out"),
        (["task", "a", "--task", "copy"], "--task is for init recipe"),
        (["recipe", "a", "--task", "cpy"], "unknown task 'cpy'; did you mean copy"),
        (["recipe", "a", "--task", "text"], "has no right answers"),
        (["task", "a", "--length", "3"], "unknown argument '--length'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(arguments, words, capsys, tmp_path):
    assert main(["init", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("longreach: ")
    assert words in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["task", "recipe"])
def test_a_file_is_never_overwritten(kind, capsys):
    file = Path("kept.yaml" if kind == "recipe" else "kept.py")
    file.write_text("mine")
    assert main(["init", kind, "kept"]) == 2
    assert f"{file} exists: choose another name, or --out FILE" in capsys.readouterr().err
    assert file.read_text() == "mine"
