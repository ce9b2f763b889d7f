"""Texts of our own for tests of corpora."""

import json
from itertools import product
from pathlib import Path

_WHO = ("The miller", "A heron", "Old Mathilda", "The night train", "My brother’s dog", "Nobody in Zürich")
_DOES = ("counts", "forgets", "paints", "carries home", "will not sell")
_WHAT = ("eleven blue buttons", "the long way round", "a kettle of tea", "what the river said", "tomorrow's bread")


def stories(count: int) -> list[str]:
    """Texts that differ, each of a few lines."""
    sentences = [f"{who} {does} {what}." for who, does, what in product(_WHO, _DOES, _WHAT)]
    picks = [
        [sentences[(7 * number + step * (number + 3)) % len(sentences)] for step in range(6)] for number in range(count)
    ]
    return [f"Story {number}\n\n" + " ".join(chosen) + "\n" for number, chosen in enumerate(picks)]


def long_story(number: int, sentences: int) -> str:
    """One text of so many sentences, each with its own order of them."""
    known = [f"{who} {does} {what}." for who, does, what in product(_WHO, _DOES, _WHAT)]
    return f"Story {number}\n\n" + " ".join(
        known[(step * (number + 7) + step**2) % len(known)] for step in range(sentences)
    )


def write_jsonl(path: Path, texts: list[str], field: str = "text") -> Path:
    path.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
