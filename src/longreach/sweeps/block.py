"""A block of a sweep file: what its runs build on, what they vary, and what applies to some of them only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from longreach.config import Plain, merge, move_fields, move_path, nested, read_yaml
from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.runs import RunConfig, changed_title, find_recipe, seeds_of, task_name, variant_settings
from longreach.sweeps.expand import AxisValue, SettingsCondition, When, move_wanted
from longreach.sweeps.names import is_folder_name
from longreach.sweeps.source import Place, SweepSource

SECTIONS = tuple(field.name for field in fields(RunConfig))
KEYS = ("name", "recipe", "variants", "seeds", "first_seed", "grid", "list", "when", "except", "stack", *SECTIONS)


@dataclass(frozen=True)
class SweepBlock:
    """Runs of one recipe, or of settings that stand in the file itself."""

    name: str
    """The folder of its runs, below the sweep's."""
    title: str
    place: Place
    variants: dict[str, Plain]
    """Settings of each variant, with those of the block on top."""
    seeds: tuple[int, ...]
    grid: dict[str, list[AxisValue]]
    listed: list[list[AxisValue]]
    whens: list[When]
    left_out: list[SettingsCondition]
    recipe: str = ""
    tasks: dict[str, object] = field(default_factory=dict)
    """The recipe's task by variant, where the title is the recipe's."""

    def title_for(self, variant: str, task: str) -> str:
        """Return the title of runs of a variant on a task, which the sweep may have changed."""
        return self.title if self.tasks.get(variant) in (None, task) else changed_title(self.recipe, [task])


def read_block(source: SweepSource, content: Plain, place: Place, stem: str, title: str) -> SweepBlock:
    for key in content:
        if key not in KEYS and place:  # the file's own keys have been looked at
            source.blame((*place, str(key)), f"{key}: unknown key{nearest(str(key), KEYS)}")
    recipe = _read_recipe(source, content, place)
    name = content.get("name", recipe.stem if recipe.stem else stem)
    if not is_folder_name(name):
        source.blame((*place, "name"), f"name: it becomes a folder: letters, digits, - and _ only, got {name!r}")
    grid = _read_grid(source, content.get("grid", {}), (*place, "grid"))
    listed = _read_list(source, content, place)
    for entry in listed:
        for choice in entry:
            if move_path(choice.path) in map(move_path, grid):
                source.blame(
                    choice.place, f"{choice.path} stands in grid as well: it can be varied in one of them only"
                )
    return SweepBlock(
        name=str(name),
        title=title or recipe.title or str(name),
        place=place,
        variants=recipe.variants,
        seeds=_seeds(source, content, recipe.seeds, place),
        grid=grid,
        listed=listed,
        whens=_read_whens(source, content, place),
        left_out=_read_conditions(source, content, place),
        recipe=recipe.stem,
        tasks={} if title else recipe.tasks,
    )


@dataclass(frozen=True)
class _Base:
    """What a block builds on."""

    stem: str
    title: str
    variants: dict[str, Plain]
    seeds: tuple[int, ...]
    tasks: dict[str, object] = field(default_factory=dict)


def _read_recipe(source: SweepSource, content: Plain, place: Place) -> _Base:
    """The recipe with the block's settings on top, or these alone."""
    own = _own_settings(source, content, place)
    if own is None:
        return _Base("", "", {}, (0,))
    asked, named = content.get("variants"), content.get("recipe")
    try:
        if named is None:
            alone = own if asked is None else {**own, "variants": asked}
            return _Base("", "", variant_settings("this block", alone), (0,))
        if not isinstance(named, str):
            raise BadInput(f"recipe: expected a name or a path, got {named!r}")
        path = _find(source.path.parent, named)
        recipe = read_yaml(path)
        variants = variant_settings(path.stem, recipe)
        seeds, title = seeds_of(path.stem, recipe), str(recipe.get("title", ""))
    except BadInput as error:
        key = "recipe" if named is not None else str(error).split(":")[0].split(".")[0]
        source.blame((*place, key), str(error))
        return _Base("", "", {}, (0,))
    chosen = list(variants) if asked is None else asked
    if not isinstance(chosen, list) or not chosen:
        source.blame((*place, "variants"), f"variants: with a recipe, a list of its variants' names, got {asked!r}")
        chosen = []
    for index, variant in enumerate(chosen):
        if variant not in variants:
            text = f"{path.stem} has no variant {variant!r}{nearest(str(variant), filter(None, variants))}"
            source.blame((*place, "variants", index), text)
        elif variant in chosen[:index]:
            source.blame((*place, "variants", index), f"variants: {variant} stands twice")
    picked = {variant: merge(settings, own) for variant, settings in variants.items() if variant in chosen}
    tasks = {variant: task_name(settings) for variant, settings in variants.items()}
    return _Base(path.stem, title, picked, seeds, tasks)


def _own_settings(source: SweepSource, content: Plain, place: Place) -> Plain | None:
    """Return the settings that stand in the block itself; `stack` is short for `execution.stack`.

    Return None after a mistake.
    """
    try:
        own = move_fields({key: content[key] for key in SECTIONS if key in content})
    except BadInput as error:
        source.blame((*place, *str(error).split(" ")[0].split(".")), str(error))
        return None
    if "stack" in content:
        if isinstance(execution := own.get("execution"), Mapping) and "stack" in execution:
            source.blame((*place, "stack"), "stack and execution.stack are one setting: give one of them")
        own = merge(own, nested("execution.stack", count(source, content, "stack", place, least=1, default=1)))
    return own


def _find(folder: Path, named: str) -> Path:
    """A path is relative to the sweep file, wherever the command is given."""
    if named.endswith((".yaml", ".yml")):
        return find_recipe(str(folder / named))
    return find_recipe(named)


def _read_grid(source: SweepSource, content: Any, place: Place) -> dict[str, list[AxisValue]]:
    grid = {}
    for path, values in _settings(source, content, place).items():
        if not isinstance(values, list) or not values:
            source.blame((*place, path), f"{path}: expected a list of values, got {values!r}")
            continue
        for index, value in enumerate(values):
            if value in values[:index]:
                source.blame((*place, path, index), f"{path}: the value {value!r} stands twice")
        grid[path] = [AxisValue(path, value, (*place, path, index)) for index, value in enumerate(values)]
    return grid


def _read_list(source: SweepSource, content: Plain, place: Place) -> list[list[AxisValue]]:
    found = []
    for entry, where in _entries(source, content, "list", place):
        found.append(
            [AxisValue(path, value, (*where, path)) for path, value in _settings(source, entry, where).items()]
        )
    return found


def _read_conditions(source: SweepSource, content: Plain, place: Place) -> list[SettingsCondition]:
    entries = _entries(source, content, "except", place)
    return [
        SettingsCondition(move_wanted(_settings(source, entry, where, "variant")), where) for entry, where in entries
    ]


def _read_whens(source: SweepSource, content: Plain, place: Place) -> list[When]:
    whens = []
    for entry, where in _entries(source, content, "when", place):
        for key in entry:
            if key not in ("if", "set"):
                source.blame((*where, str(key)), f"when: unknown key {key}{nearest(str(key), ('if', 'set'))}")
        for key in ("if", "set"):
            if key not in entry:
                source.blame(
                    where, f"when: {key} is missing, as in {{if: {{ids: coupled}}, set: {{train.steps: 500}}}}"
                )
        condition = _settings(source, entry.get("if", {}), (*where, "if"), "variant")
        changes = _settings(source, entry.get("set", {}), (*where, "set"))
        whens.append(When(SettingsCondition(move_wanted(condition), where), changes))
    return whens


def _entries(source: SweepSource, content: Plain, key: str, place: Place) -> list[tuple[Plain, Place]]:
    """The mappings of a list, with their places."""
    entries = content.get(key, [])
    if not isinstance(entries, list) or (key in content and not entries):
        source.blame((*place, key), f"{key}: expected a list, got {entries!r}")
        return []
    found = []
    for index, entry in enumerate(entries):
        if isinstance(entry, Mapping) and entry:
            found.append((dict(entry), (*place, key, index)))
        else:
            source.blame((*place, key, index), f"{key}: expected settings such as train.steps: 500, got {entry!r}")
    return found


def _settings(source: SweepSource, content: Any, place: Place, *others: str) -> Plain:
    """Paths of settings with their values, and a few other keys."""
    if not isinstance(content, Mapping):
        source.blame(place, f"{place[-1]}: expected settings such as train.steps: 500, got {content!r}")
        return {}
    known = {}
    for path, value in content.items():
        if not isinstance(path, str) or (path.split(".")[0] not in SECTIONS and path not in others):
            text = f"{path}: unknown setting{nearest(str(path).split('.')[0], (*SECTIONS, *others))}"
            source.blame((*place, str(path)), text)
        elif (new := move_path(path)) != path and new in content:
            source.blame((*place, path), f"{path} is now {new}: give one of them")
        else:
            known[path] = value
    return known


def _seeds(source: SweepSource, content: Plain, default: tuple[int, ...], place: Place) -> tuple[int, ...]:
    """A number of seeds, with `first_seed` if it is not 0, or a list of them."""
    seeds = content.get("seeds", len(default))
    if not isinstance(seeds, list):
        try:
            return seeds_of("this block", {"seeds": seeds, "first_seed": content.get("first_seed", default[0])})
        except BadInput as error:
            source.blame((*place, "seeds" if "seeds" in content else "first_seed"), str(error))
            return default
    if (
        not seeds
        or any(type(seed) is not int or not 0 <= seed < 2**63 for seed in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        source.blame((*place, "seeds"), f"seeds: expected a number, or different numbers from 0, got {seeds!r}")
        return default
    if "first_seed" in content:
        source.blame((*place, "first_seed"), "first_seed needs a number of seeds, not a list of them")
    return tuple(seeds)


def count(source: SweepSource, content: Plain, key: str, place: Place, least: int, default: int) -> int:
    value = content.get(key, default)
    if type(value) is not int or value < least:
        source.blame((*place, key), f"{key}: expected a number from {least}, got {value!r}")
        return default
    return value
