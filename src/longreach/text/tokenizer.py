"""Text to numbers and back.  Every token stands for some bytes; what people read follows from those."""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longreach.errors import BadInput

PAD, END = "<pad>", "<end>"
"""Tokens 0 and 1 of our own tokenizers."""


class Tokenizer(ABC):
    """A subclass says what bytes each token stands for, which token ends a document, and how text is cut."""

    kind: str
    """bytes, bpe or hf."""
    end: int
    """The token that follows every document."""

    @property
    @abstractmethod
    def spelling(self) -> tuple[bytes, ...]:
        """The bytes of each token; those of a special token are its name."""

    @abstractmethod
    def encode_array(self, text: str) -> NDArray[np.integer[Any]]:
        """The tokens of a text, without an end token.  Names of special tokens in a text are plain text."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the tokenizer's own files, if it needs any."""

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens as a person reads them, each on one line: part of a character as <E2>, a new line as \\n."""
        return tuple(_legible(spelling) for spelling in self.spelling)

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self.encode_array(text).tolist()
        return tokens

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text that each token adds: a character of several tokens comes with the last of them."""
        whole = codecs.getincrementaldecoder("utf-8")(errors="replace")
        pieces = [whole.decode(self.spelling[token]) for token in ids]
        rest = whole.decode(b"", final=True)
        return [*pieces[:-1], pieces[-1] + rest] if pieces else []


class Bytes(Tokenizer):
    """One token for each byte of UTF-8: byte b is token b + 2."""

    kind = "bytes"
    end = 1
    spelling = (PAD.encode(), END.encode(), *(bytes([byte]) for byte in range(256)))

    def encode_array(self, text: str) -> NDArray[np.uint16]:
        return np.frombuffer(utf8(text), dtype=np.uint8).astype(np.uint16) + np.uint16(2)

    def save(self, folder: Path) -> None:
        pass


def utf8(text: str) -> bytes:
    """A string of Python may hold halves of characters, which are not text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"not Unicode text: half a character at {error.start}") from error


def _legible(spelling: bytes) -> str:
    try:
        text = spelling.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if 32 <= byte < 127 else f"<{byte:02X}>" for byte in spelling)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
