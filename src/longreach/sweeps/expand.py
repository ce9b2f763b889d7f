"""From axes to settings: which combinations there are, and what each of them says."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longreach.config import Plain, merge, move_fields, nested
from longreach.sweeps.source import Place


@dataclass(frozen=True)
class AxisValue:
    """One value of one setting, and where the file says so."""

    path: str
    value: Any
    place: Place


Combination = tuple[AxisValue, ...]
"""One value for every axis, ordered by their paths."""


@dataclass(frozen=True)
class SettingsCondition:
    """Settings and the value, or list of values, that each must have."""

    wanted: Mapping[str, Any]
    place: Place

    def holds(self, variant: str, settings: Plain) -> bool:
        return all(
            _agrees(variant if path == "variant" else _at(settings, path), value) for path, value in self.wanted.items()
        )


@dataclass(frozen=True)
class When:
    """Settings that apply only where a condition holds."""

    condition: SettingsCondition
    changes: Mapping[str, Any]


def combinations(grid: Mapping[str, Sequence[AxisValue]], listed: Sequence[Sequence[AxisValue]]) -> list[Combination]:
    """Every value of every axis of the grid with every entry of the list."""
    return [
        tuple(sorted([*chosen, *entry], key=lambda choice: choice.path))
        for entry in (listed or [()])
        for chosen in itertools.product(*grid.values())
    ]


def lay_on_top(settings: Plain, changes: Iterable[tuple[str, Any]]) -> Plain:
    """Settings with others on top.  `ids` comes before `ids.max_id`, whatever their order in the file."""
    for path, value in sorted(changes, key=lambda change: change[0]):
        settings = merge(settings, move_fields(nested(path, value)))
    return settings


def settle(variant: str, settings: Plain, combination: Combination, whens: Iterable[When]) -> tuple[Plain, list[When]]:
    """What a run is made of: its variant, its combination, then every `when` that holds, one after the other; and which
    of them did."""
    settings = lay_on_top(settings, ((choice.path, choice.value) for choice in combination))
    held = []
    for when in whens:
        if when.condition.holds(variant, settings):
            settings = lay_on_top(settings, when.changes.items())
            held.append(when)
    return settings, held


def move_wanted(wanted: Mapping[str, Any]) -> Plain:
    """Return the settings that a condition names under their present names."""
    found: Plain = {}
    for path, value in wanted.items():
        given = nested(path, value)
        moved = move_fields(given)
        if moved == given:
            found[path] = value
        else:
            found |= {f"{section}.{name}": one for section, own in moved.items() for name, one in own.items()}
    return found


def _at(settings: Any, path: str) -> Any:
    """The value at a path, None where nothing is said; a part given as a bare name has that as its `name`."""
    for key in path.split("."):
        if isinstance(settings, str):
            settings = {"name": settings}
        settings = settings.get(key) if isinstance(settings, Mapping) else None
    return settings


def _agrees(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list) and found != wanted:
        return any(_agrees(found, one) for one in wanted)
    if isinstance(wanted, Mapping):
        return all(_agrees(_at(found, key), value) for key, value in wanted.items())
    if isinstance(wanted, str) and isinstance(found, Mapping):
        found = found.get("name")
    return bool(found == wanted)
