"""Pieces of a text that are short enough to be probed whole."""

import re
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput


@dataclass(frozen=True)
class Passage:
    """Tokens with what each of them stands for."""

    title: str
    tokens: Int[Tensor, "t"]
    pieces: tuple[str, ...]
    opening: int = 0
    """Tokens at the start that open every text, such as a beginning-of-text token; passages of it begin with them."""
    text_fingerprint: str = ""
    """What identifies the whole text that it was cut from, whatever its title; empty where only the title does."""

    def cut(self, length: int, count: int) -> list["Passage"]:
        """`count` passages of at most `length` tokens, evenly spread, none overlapping another."""
        opening, rest = slice(0, self.opening), len(self.tokens) - self.opening
        size = min(length - self.opening, rest)
        if size < 3:
            raise BadInput(f"{self.title}: {size} tokens are too few to hide one of them")
        if size * count > rest:
            raise BadInput(f"{self.title} has {rest} tokens, which is not enough for {count} passages of {length}")
        passages = []
        for number in range(count):
            start = self.opening + number * (rest // count)
            place = slice(start, start + size)
            tokens = torch.cat([self.tokens[opening], self.tokens[place]])
            pieces = self.pieces[opening] + self.pieces[place]
            title = self.title if size == rest else f"{self.title}, tokens {start}..{start + size - 1}"
            passages.append(Passage(title, tokens, pieces, self.opening, self.text_fingerprint))
        return passages

    def targets(self, which: str, number: int, window: int) -> Int[Tensor, "n"]:
        """Tokens to predict: `all` that have an earlier one to hide, the `last` so many, or `every` so-manieth."""
        able = torch.arange(window + 2, len(self.tokens))
        if which == "last":
            return able[-number:]
        return able[:: number if which == "every" else 1]


def document_of(title: str) -> str:
    """The title of the text that a passage was cut from."""
    return re.sub(r", tokens \d+\.\.\d+$", "", title)
