"""What the packages hold, as plain documents: a name and a text each."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from longreach.text.archives import read_members
from longreach.text.html import html_to_text

Reader = Callable[[Path], Iterator[tuple[str, str]]]
"""The documents in an archive."""


def text_files(pattern: str, leave_out: tuple[str, ...] = ()) -> Reader:
    """A document for each text file, but for some."""
    return partial(_members, pattern=pattern, leave_out=leave_out, read=_decode)


def pages(pattern: str) -> Reader:
    """A document for each page of HTML that is not a list of links."""
    return partial(_members, pattern=pattern, leave_out=(), read=lambda content: html_to_text(_decode(content)))


def books_of_verses(pattern: str) -> Reader:
    """A document for each book of {"Genesis 1:1": verse, ...}, where # begins a paragraph and [] is italics."""
    return partial(_books, pattern=pattern)


def _members(
    archive: Path, pattern: str, leave_out: tuple[str, ...], read: Callable[[bytes], str]
) -> Iterator[tuple[str, str]]:
    for name, content in read_members(archive, pattern):
        if name not in leave_out:
            yield Path(name).stem, read(content.read())


def _books(archive: Path, pattern: str) -> Iterator[tuple[str, str]]:
    for _, content in read_members(archive, pattern):
        books: dict[str, str] = {}
        for place, verse in json.loads(content.read()).items():
            book, _, number = place.rpartition(" ")
            gap = "\n\n" if verse.startswith("#") or number.endswith(":1") else " "
            text = verse.lstrip("# ").replace("[", "").replace("]", "")
            books[book] = books.get(book, book) + gap + text
        yield from books.items()


def _decode(content: bytes) -> str:
    return content.decode("utf-8-sig").replace("\r\n", "\n")
