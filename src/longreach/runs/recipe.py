"""A recipe: one run, or several variants that differ only in what each of them names."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from longreach.config import Plain, Settings, build, merge, move_fields, read_yaml, upgrade
from longreach.config.registry import kind_of, name_of, nearest
from longreach.errors import BadInput
from longreach.evaluation import EvalConfig
from longreach.execution import ExecutionConfig
from longreach.model import ModelConfig, TransformerConfig
from longreach.positions.ids import IdPolicy, Sequential
from longreach.runs.preset import on_preset, with_preset, with_test_lengths
from longreach.tasks import Task
from longreach.text import SplitName
from longreach.training import OptimizerConfig, TrainConfig
from longreach.version import PACKAGE


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """Everything that decides the result of a run except its seed, and how the run is computed."""

    task: Task
    """What is asked."""
    ids: IdPolicy = field(default_factory=Sequential)
    """Where tokens stand."""
    model: ModelConfig = field(default_factory=TransformerConfig)
    """What learns."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """How it trains."""
    evaluate: EvalConfig = field(default_factory=EvalConfig)
    """What it is asked afterwards."""
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    """How it is computed.  This section alone may change when a run is resumed."""

    def __post_init__(self) -> None:
        size, parts = self.train.batch_size, self.execution.accumulate
        if size % parts:
            raise ValueError(f"train.batch_size={size} does not split into {parts} parts (execution.accumulate)")

    def held_out(self, split: SplitName = "test") -> Task:
        """Return the task on material that training does not show; see `Task.held_out`."""
        primed = 0 if self.train.prime is None else self.train.prime.lengths.high
        return self.task.held_out(split, max(self.train.lengths.high, primed))


SECTIONS = {
    "train": TrainConfig,
    "train.optimizer": OptimizerConfig,
    "evaluate": EvalConfig,
    "execution": ExecutionConfig,
}
"""Sections of a recipe whose class does not depend on a name, for help texts."""


def build_config(settings: Mapping[str, Any]) -> RunConfig:
    """Build the configuration of a run from plain settings, those of earlier versions included."""
    return build(RunConfig, upgrade(settings))


@dataclass(frozen=True)
class Recipe:
    """A named set of runs."""

    name: str
    title: str
    about: str
    seeds: tuple[int, ...]
    variants: dict[str, RunConfig]
    """By name; a recipe without variants has one with an empty name."""


_MOST_SEEDS = 100_000
_HEAD = ("title", "about", "seeds", "first_seed", "variants", "preset")


def load_recipe(
    name_or_path: str | None, changes: Mapping[str, Any] | None = None, only: Collection[str] | None = None
) -> Recipe:
    """Return a recipe of ours by its name, or any by its path.

    `changes` go on top of every variant, or `only` of these.  Without a name they give a preset and a task.
    """
    changes = changes or {}
    if name_or_path is None:
        task = task_name(changes)
        if "preset" not in changes or not task:
            raise BadInput("name a recipe, or give --preset, --task.name and --train.lengths")
        name = f"{changes['preset']}-{str(task).rpartition('.')[2]}"
        return parse_recipe(name, {"title": f"{task}, preset {changes['preset']}"}, changes, only)
    path = find_recipe(name_or_path)
    return parse_recipe(path.stem, read_yaml(path), changes, only)


def parse_recipe(
    name: str, content: Mapping[str, Any], changes: Mapping[str, Any], only: Collection[str] | None = None
) -> Recipe:
    if "preset" in changes:
        content = with_preset(changes["preset"], content)
    content = merge(content, {key: value for key, value in changes.items() if key in _HEAD})
    overrides = move_fields({key: value for key, value in changes.items() if key not in _HEAD})
    seeds = seeds_of(name, content)
    _refuse_unknown_keys(overrides)
    built, changed = {}, []
    for variant, own in variant_settings(name, content).items():
        # what is changed may not even exist in the others
        settings = merge(own, overrides) if only is None or variant in only else own
        if "preset" in content:
            settings = with_test_lengths(content["preset"], settings)
        built[variant] = build_config(settings)
        if any(read(own) not in (None, read(settings)) for read in (task_name, _training_lengths)):
            changed.append(built[variant].task.name)
    if changed:  # title and text are about other runs, unless flags give them too
        title = changes.get("title", changed_title(name, changed))
        content = merge(content, {"title": title, "about": changes.get("about", "")})
    return Recipe(
        name=name,
        title=str(content.get("title", name)),
        about=" ".join(str(content.get("about", "")).split()),
        seeds=seeds,
        variants=built,
    )


def changed_title(recipe: str, tasks: Sequence[str]) -> str:
    """Return the title of runs whose tasks or training lengths are not those of their recipe."""
    return f"{', '.join(dict.fromkeys(tasks))}, changed from {recipe}"


def task_name(settings: Mapping[str, Any]) -> object:
    """Return the name of the task of plain settings; None if they name none."""
    task = settings.get("task")
    return task.get("name") if isinstance(task, Mapping) else task


def _training_lengths(settings: Mapping[str, Any]) -> object:
    """Return the training lengths of plain settings; None if they name none."""
    train = settings.get("train")
    return train.get("lengths") if isinstance(train, Mapping) else None


def seeds_of(name: str, content: Mapping[str, Any]) -> tuple[int, ...]:
    """The numbers of a recipe's seeds."""
    seeds, first = content.get("seeds", 1), content.get("first_seed", 0)
    if type(seeds) is not int or seeds < 1 or type(first) is not int or first < 0:
        raise BadInput(f"{name}: seeds must be a number from 1 and first_seed one from 0, got {seeds!r} and {first!r}")
    if seeds > _MOST_SEEDS or first + seeds > 2**63:
        raise BadInput(f"{name}: seeds must be at most {_MOST_SEEDS} and numbered below 2**63, from {first!r} on")
    return tuple(range(first, first + seeds))


def variant_settings(name: str, content: Mapping[str, Any]) -> dict[str, Plain]:
    """What each variant of a recipe says, not yet built; without variants there is one with an empty name."""
    variants = content.get("variants", {"": {}})
    if not isinstance(variants, Mapping) or not variants:
        raise BadInput(f"{name}: variants must be a mapping from names to settings")
    base = _with_names(move_fields({key: value for key, value in content.items() if key not in _HEAD}))
    _refuse_unknown_keys(base)
    if "preset" in content:
        base = on_preset(content["preset"], base)
    found = {}
    for variant, own in variants.items():
        if not isinstance(own, Mapping | None):
            raise BadInput(f"variants.{variant}: expected a mapping of settings, got {own!r}")
        found[_check_name(str(variant))] = merge(base, move_fields(own or {}))
    return found


def variant_names(recipe: str) -> list[str]:
    """Return the names of the variants of a shipped recipe, in its order; none for an unknown recipe."""
    path = shipped_recipes().get(recipe)
    if path is None:
        return []
    variants = read_yaml(path).get("variants")
    return [str(name) for name in variants] if isinstance(variants, Mapping) else []


def _refuse_unknown_keys(settings: Mapping[str, Any]) -> None:
    sections = [field.name for field in fields(RunConfig)]
    for key in settings:
        if key not in sections:
            within = [f"{section.name}.{key}" for section in fields(RunConfig) if _has_field(section, str(key))]
            close = difflib.get_close_matches(str(key), [*_HEAD, *sections], n=1, cutoff=0.8)
            hint = nearest(str(key), [*_HEAD, *sections])
            if within:
                hint = f"; did you mean {' or '.join([*close, *within])}?"
            raise BadInput(f"{key}: unknown key{hint}")


def _has_field(section: "Field[Any]", name: str) -> bool:
    """Return whether a section's default settings have a field of that name."""
    default = section.default_factory
    return callable(default) and name in {field.name for field in fields(default())}


def _with_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a part without its name are the default part's: say so, lest another part inherits them."""
    named = dict(settings)
    for field_ in fields(RunConfig):
        value = named.get(field_.name)
        if callable(field_.default_factory) and isinstance(value, Mapping) and "name" not in value:
            default = field_.default_factory()
            if any(kind_of(base) for base in type(default).__mro__):
                named[field_.name] = {"name": name_of(type(default)), **value}
    return named


def shipped_recipes() -> dict[str, Path]:
    """Our recipes: beside the package in a wheel, at the top of the project in a checkout."""
    for folder in (PACKAGE / "recipes", PACKAGE.parents[1] / "recipes"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return {}


def find_recipe(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        if not path.is_file():
            raise BadInput(f"there is no recipe file {path}")
        return path
    shipped = shipped_recipes()
    if name_or_path not in shipped:
        raise BadInput(f"unknown recipe {name_or_path!r}{nearest(name_or_path, shipped)}")
    return shipped[name_or_path]


def _check_name(variant: str) -> str:
    if variant and (not variant.replace("_", "").replace("-", "").replace(" ", "").isalnum()):
        raise BadInput(f"a variant's name becomes a folder: letters, digits, - and _ only, got {variant!r}")
    return variant
