"""Kinds of token, by what a person reads."""

from collections.abc import Sequence

KINDS = ("word start", "word continuation", "number", "punctuation", "whitespace", "other")
"""`other`: letters mixed with digits or signs, marks such as <|end|>, and parts of characters."""

_IN_WORDS = "'’-"
_IN_NUMBERS = ".,"


def token_kinds(pieces: Sequence[str]) -> list[str]:
    """The kind of each piece.  Whether a word begins or goes on is told by a space in front or by the piece before."""
    befores = ["", *pieces[:-1]]
    return [_kind(piece, before) for piece, before in zip(pieces, befores, strict=True)]


def _kind(piece: str, before: str) -> str:
    bare = piece.strip()
    if not bare:
        return "whitespace" if piece else "other"
    if "\N{REPLACEMENT CHARACTER}" in bare:  # a character that several tokens share
        return "other"
    if not any(c.isalnum() for c in bare):
        return "punctuation"
    if all(c.isdecimal() or c in _IN_NUMBERS for c in bare):
        return "number"
    if all(c.isalpha() or c in _IN_WORDS for c in bare):
        goes_on = not piece[0].isspace() and before[-1:].isalnum()
        return "word continuation" if goes_on else "word start"
    return "other"
