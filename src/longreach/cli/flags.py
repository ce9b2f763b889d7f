"""Flags that change one thing of a recipe: `--train.lr 1e-3`, `--task.k 4,6,8`."""

from collections.abc import Mapping, Sequence

from longreach.config import Plain, merge, move_fields, nested, read_value
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
    return move_fields(changes)


def short_flags(changes: Plain, **given: object) -> Plain:
    """Return changes with those of flags such as `--stack 2`, short for `--execution.stack 2`, where they are given."""
    execution = changes.get("execution", {})
    for name, value in given.items():
        if value is not None and isinstance(execution, Mapping) and name in execution:
            raise BadInput(f"--{name.replace('_', '-')} and --execution.{name} are one setting: give one of them")
        if value is not None:
            changes = merge(changes, nested(f"execution.{name}", value))
    return changes


def evaluation_changes(arguments: Sequence[str]) -> Plain:
    """Return changes to a test by section: `--task.k 4,6` -> {evaluate: {axes: {k: [4, 6]}}}."""
    changes: Plain = {}
    for name, value in pair_up(arguments):
        section, _, key = name.replace("-", "_").partition(".")
        if section in ("evaluate", "execution") and key:
            changes.setdefault(section, {})[key] = read_value(value)
        elif section == "task" and key:
            values = read_value(f"[{value}]")
            axes = changes.setdefault("evaluate", {}).setdefault("axes", {})
            axes[key] = values if isinstance(values, list) else [values]
        else:
            others = "--task.FIELD, --evaluate.FIELD and --execution.FIELD"
            raise BadInput(f"unknown flag --{name}: besides the listed flags, {others} exist")
    return move_fields(changes)


def task_settings(name: str, arguments: Sequence[str]) -> Plain:
    """`--task.k 4` or `--k 4` -> {name: NAME, k: 4}."""
    pairs = pair_up(arguments)
    changes = {flag.removeprefix("task.").replace("-", "_"): read_value(value) for flag, value in pairs}
    return {"name": name, **changes}
