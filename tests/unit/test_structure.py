"""IDs from the structure of a text: what they are, and that each follows from the token and the IDs before it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longreach.tasks.structure import Structure

PIECES = ["<end>", "a", "b c", " d", "\n", "\n    ", "    ", " ", "\t", "\n  x", ",", "(", ")", "([", "])}", "()", "|"]
"""Tokens of a small language; the first ends a document."""

STRUCTURES = [
    Structure(segments="\n"),
    Structure(segments="\nc", places=3),
    Structure(segments="\n", cells=",|", places=3),
    Structure(segments="\n", indents=4),
    Structure(segments="\n", indents=40, depths=3),
    Structure(segments="c", cells="\t", depths=2),
    Structure(segments="\n", depths=1),
]


def traits_of(structure: Structure, text: list[str]):
    traits = structure.traits([piece.encode() for piece in PIECES], end=0)
    return traits.of(torch.tensor([[PIECES.index(piece) for piece in text]]))


def ids_of(structure: Structure, *text: str) -> dict[str, list[int]]:
    found = structure.ids(traits_of(structure, list(text)))[0].tolist()
    return dict(zip((level.name for level in structure.levels), found, strict=True))


def test_lines_and_their_indentation() -> None:
    ids = ids_of(
        Structure(segments="\n", indents=8), "a", "\n", "    ", " d", "a", "\n    ", "a", "    ", "b c", "\n  x"
    )
    assert ids["segment"] == [1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
    assert ids["indent"] == [1, 1, 5, 6, 6, 5, 5, 5, 5, 3]
    assert ids["place"] == [2, 1, 1, 2, 3, 1, 2, 3, 4, 2]


def test_rows_and_cells() -> None:
    ids = ids_of(Structure(segments="\n", cells=",|"), "a", ",", "a", "a", "|", "\n", ",", "a")
    assert ids["segment"] == [1, 1, 1, 1, 1, 2, 2, 2]
    assert ids["cell"] == [1, 2, 2, 2, 3, 1, 2, 2]
    assert ids["place"] == [1, 1, 2, 3, 1, 1, 1, 2]


def test_brackets() -> None:
    structure = Structure(segments="\n", depths=3)
    assert ids_of(structure, "a", "(", "a", "()", "([", ")", "])}", "a")["depth"] == [1, 2, 2, 2, 3, 2, 1, 1]
    assert ids_of(structure, "(", "(", "<end>", "a", ")", "(")["depth"] == [2, 3, 1, 1, 1, 2]


@given(st.sampled_from(STRUCTURES), st.lists(st.sampled_from(PIECES), min_size=1, max_size=40))
def test_ids_follow_from_the_token_and_the_ids_before(structure: Structure, text: list[str]) -> None:
    traits = traits_of(structure, text)
    ids = structure.ids(traits)
    for place in range(1, len(text)):
        one = type(traits)(*(trait[:, place] for trait in traits))
        assert torch.equal(structure.follow(one, ids[:, :, place - 1]), ids[:, :, place])


@given(st.sampled_from(STRUCTURES), st.lists(st.sampled_from(PIECES), min_size=1, max_size=40))
def test_ids_stay_within_their_levels(structure: Structure, text: list[str]) -> None:
    ids = structure.ids(traits_of(structure, text))
    for number, level in enumerate(structure.levels):
        assert ids[:, number].min() >= 1
        assert level.grows or ids[:, number].max() <= level.size


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"places": 0}, "structure.places must be at least 1, got 0"),
        ({"segments": "\n", "depths": -1}, "structure.depths must be at least 0"),
        ({"cells": ","}, "structure.segments is missing"),
        ({"segments": ".", "indents": 8}, "must be a line break, got '.'"),
        ({"segments": "\n", "indents": 8, "cells": ","}, "cannot both be set"),
        ({"segments": "\n", "indents": 8, "places": 1}, "at least 2 with indents"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Structure(**settings)
