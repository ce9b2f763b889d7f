"""`longreach init task|example|program|recipe NAME`: write a commented template that runs at once."""

import argparse
import keyword
import os
import shlex
import sys
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from longreach.cli.parsers.init import KINDS, TASK
from longreach.config import build_part
from longreach.config.registry import nearest
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.tasks import Task
from longreach.terminal.console import out
from longreach.training import legal_lengths

_LONGEST, _MOST_TRAINED, _MOST_TESTED = 8, 64, 512
"""Length of the longest training sample, and tokens of the longest training and test samples."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if args.kind not in KINDS:
        raise BadInput(f"init writes {', '.join(KINDS)}, got {args.kind!r}{nearest(args.kind, KINDS)}")
    if args.task is not None and args.kind != "recipe":
        raise BadInput(f"--task is for init recipe, not for init {args.kind}")
    suffix = ".yaml" if args.kind == "recipe" else ".py"
    file = args.out or Path(args.name + suffix)
    _check_name(args.name)
    _check_file(file, suffix)
    written = _recipe(file, args.task or TASK) if args.kind == "recipe" else _class(args.kind, args.name, file)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(written.text)
    out.print(f"{file} is written.  Next:", highlight=False, soft_wrap=True)
    folder = [] if file.parent.resolve() == Path.cwd() else [shlex.join(["cd", str(file.parent)])]
    for command in [*folder, *written.commands]:
        out.print(f"  {command}", highlight=False, soft_wrap=True)
    return 0


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or not _class_name(name).isidentifier():
        raise BadInput(f"a name consists of letters, digits and _, as in Python, got {name!r}")


def _check_file(file: Path, suffix: str) -> None:
    """Raise BadInput if the file cannot be written, or if it would hide a module or be hidden by one."""
    if file.suffix != suffix:
        raise BadInput(f"--out must end in {suffix}, got {file}")
    if not file.parent.is_dir():
        raise BadInput(f"there is no folder {file.parent} for --out")
    if os.path.lexists(file):
        raise BadInput(f"{file} exists: choose another name, or --out FILE")
    if suffix == ".py" and not file.stem.isidentifier():
        raise BadInput(f"--out must be named as a Python module, got {file}")
    if suffix == ".py" and (file.stem in sys.modules or find_spec(file.stem) is not None):
        raise BadInput(f"{file.stem} is an installed module: choose another name")


def _class_name(name: str) -> str:
    """my_copy -> MyCopy."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


@dataclass(frozen=True)
class _Written:
    """A template with its blanks filled in."""

    text: str
    commands: list[str]
    """What to try next, in the folder of the file."""


def _fill(name: str, **blanks: str) -> str:
    template = files("longreach.cli").joinpath("templates").joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return Template(template).substitute(blanks)


def _class(kind: str, name: str, file: Path) -> _Written:
    cls = _class_name(name)
    path = f"{file.stem}.{cls}"
    commands = [
        f"longreach show {path} --length 5",
        f"longreach check {path}",
        f"longreach init recipe {file.stem} --task {path}",
        f"longreach run {file.stem}.yaml",
    ]
    return _Written(_fill(f"{kind}.py", cls=cls), commands)


def _recipe(file: Path, name: str) -> _Written:
    task = build_part(Task, name, "--task")
    if task.open_ended:
        raise BadInput(f"--task {name} has no right answers: start from the recipe text_small")
    trained, tests = _choose_lengths(task)
    max_id = max(100, task.max_tokens(tests[-1]))
    coupled = bool(task.coupling_levels)
    if coupled:
        about = "Counted position IDs, and IDs that the model predicts for every token it writes (PPC)."
        variant = """\
  ppc:               # heads compare IDs, and the model predicts the ID of every token that it writes
    ids: {name: predicted, relabelling: none}
    model:
      heads: 8
      encoding: {name: equal_ids, heads: 6}
      position_head: {name: pointer, kind_first: true, across_levels: true}"""
    else:
        about = "Counted position IDs, and IDs that skip numbers in training (the task has no coupling)."
        variant = f"""\
  pose:              # training skips IDs, so that it meets large ones
    ids: {{name: pose, max_id: {max_id}}}
    model: {{encoding: rope}}"""
    text = _fill(
        "recipe.yaml",
        file=str(file.name),
        task=name,
        first=str(trained[0]),
        last=str(trained[-1]),
        tests=",".join(map(str, tests)),
        about=about,
        variant=variant,
    )
    trained_run = f"runs/{file.stem}/{'ppc' if coupled else 'pose'}/seed-0"
    return _Written(text, [f"longreach run {shlex.quote(file.name)}", f"longreach inspect {shlex.quote(trained_run)}"])


def _choose_lengths(task: Task) -> tuple[tuple[int, ...], list[int]]:
    """Return the lengths of training, and those of the test: half, once, twice, ... the longest of training."""
    longest = _LONGEST
    while not _legal(task, longest) and longest < 1024:
        longest *= 2  # a task may have no short samples
    trained = legal_lengths(task, Span(1, longest))
    while len(trained) > 1 and task.max_tokens(trained[-1]) > _MOST_TRAINED:
        trained = trained[:-1]
    tests = {trained[-1], next(one for one in trained if 2 * one >= trained[-1])}
    for factor in (2, 4, 8):
        near = [one for one in _legal(task, factor * trained[-1] + 4) if one >= factor * trained[-1]]
        if near and task.max_tokens(near[0]) <= _MOST_TESTED:
            tests.add(near[0])
    return trained, sorted(tests)


def _legal(task: Task, longest: int) -> tuple[int, ...]:
    """Return the lengths up to `longest` that the task has."""
    try:
        return legal_lengths(task, Span(1, longest))
    except BadInput:
        return ()
