"""Presets: position IDs, model and training that serve many tasks.  The task and its lengths come from elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longreach.config import Plain, Span, merge, move_fields, read_yaml
from longreach.config.registry import nearest
from longreach.errors import BadInput
from longreach.version import PACKAGE

_FACTORS = (1, 2, 5, 10)
"""Test lengths in longest training lengths, where neither recipe nor flags name any."""
_ABOUT = ("title", "about")


def shipped_presets() -> dict[str, Path]:
    """Return the presets by name: beside the package in a wheel, in the recipes of a checkout."""
    for folder in (PACKAGE / "recipes" / "presets", PACKAGE.parents[1] / "recipes" / "presets"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    return {}


def load_preset(name: object) -> Plain:
    """Return the settings of a preset."""
    known = shipped_presets()
    if not isinstance(name, str) or name not in known:
        raise BadInput(f"unknown preset {name!r}{nearest(str(name), known)}")
    return {key: value for key, value in read_yaml(known[name]).items() if key not in _ABOUT}


def on_preset(name: object, settings: Mapping[str, Any]) -> Plain:
    """Return settings that build on a preset: the given ones go on top."""
    return merge(load_preset(name), {key: value for key, value in move_fields(settings).items() if value != {}})


def with_test_lengths(name: object, settings: Plain) -> Plain:
    """Add tests at 1, 2, 5 and 10 times the longest training length if settings that use a preset name none."""
    train, tests = settings["train"], settings["evaluate"]
    if isinstance(train, Mapping) and "lengths" not in train:
        raise BadInput(f"preset {name} says nothing about lengths: add train.lengths, such as 1..10")
    if not isinstance(tests, Mapping) or "lengths" in tests:
        return settings
    try:
        longest = Span.parse(train["lengths"]).high if isinstance(train, Mapping) else train.lengths.high
    except ValueError as error:
        raise BadInput(f"train.lengths: {error}") from error
    return {**settings, "evaluate": {**tests, "lengths": [factor * longest for factor in _FACTORS]}}


def with_preset(name: object, recipe: Mapping[str, Any]) -> Plain:
    """Return what a recipe says about task, lengths, tests and execution; a preset gives the rest, in one variant."""
    kept = move_fields({key: value for key, value in recipe.items() if key not in ("ids", "model", "variants")})
    train = kept.pop("train", {})
    if "lengths" in train:
        kept["train"] = {"lengths": train["lengths"]}
    return {**kept, "preset": name}
