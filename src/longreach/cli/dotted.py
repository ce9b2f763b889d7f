"""Flags with a dot change a recipe.  Every command passes here, and some must start at once: nothing is imported."""

from collections.abc import Sequence


def take_settings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Set `--a.b VALUE` pairs apart, wherever they stand, so that their values are not taken for something else."""
    rest: list[str] = []
    settings: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        dotted = word.startswith("--") and "." in word.partition("=")[0]
        (settings if dotted else rest).append(word)
        if dotted and "=" not in word and words and not words[0].startswith("--"):
            settings.append(words.pop(0))
    return rest, settings
