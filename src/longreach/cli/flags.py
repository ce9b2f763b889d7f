"""Flags that change one thing of a recipe: `--train.lr 1e-3`, `--task.k 4,6,8`."""

from collections.abc import Sequence

from longreach.config import Plain, merge, nested, read_value
from longreach.errors import BadInput


def pair_up(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """[--a.b, 1, --c=2] -> [(a.b, 1), (c, 2)]."""
    pairs = []
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--"):
            raise BadInput(f"unexpected argument {flag!r}")
        name, equals, value = flag[2:].partition("=")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise BadInput(f"{flag} needs a value")
            value = rest.pop(0)
        pairs.append((name, value))
    return pairs


def recipe_changes(arguments: Sequence[str]) -> Plain:
    """Changes to lay on top of a recipe."""
    changes: Plain = {}
    for name, value in pair_up(arguments):
        changes = merge(changes, nested(name.replace("-", "_"), read_value(value)))
    return changes


def evaluation_changes(arguments: Sequence[str]) -> Plain:
    """Return changes to a test: `--task.k 4,6,8 --evaluate.seed 1` -> {axes: {k: [4, 6, 8]}, seed: 1}."""
    changes: Plain = {}
    for name, value in pair_up(arguments):
        section, _, key = name.replace("-", "_").partition(".")
        if section == "evaluate" and key:
            changes[key] = read_value(value)
        elif section == "task" and key:
            values = read_value(f"[{value}]")
            changes.setdefault("axes", {})[key] = values if isinstance(values, list) else [values]
        else:
            raise BadInput(f"unknown flag --{name}: besides the listed flags, --task.FIELD and --evaluate.FIELD exist")
    return changes


def task_settings(name: str, arguments: Sequence[str]) -> Plain:
    """`--task.k 4` or `--k 4` -> {name: NAME, k: 4}."""
    pairs = pair_up(arguments)
    changes = {flag.removeprefix("task.").replace("-", "_"): read_value(value) for flag, value in pairs}
    return {"name": name, **changes}
