"""The rows of a file as words, lengths and IDs."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from longreach.errors import BadInput
from longreach.system.files import naming_damage
from longreach.tasks.base import Form, Level
from longreach.tasks.example import couple, read_ids
from longreach.tasks.plain import Row
from longreach.text import Subwords, open_subwords
from longreach.text.rows import read_rows
from longreach.text.tokenizer import END, PAD

_COLUMNS = ("prompt", "answer", "length", "ids")
_LONGEST = 1 << 20


class Entry(NamedTuple):
    """One row of a file."""

    row: Row
    length: int
    digest: bytes
    """SHA-256 of the prompt."""

    @property
    def place(self) -> float:
        """Return a number from 0 and below 1 that depends on the prompt alone."""
        return int.from_bytes(self.digest[:8], "big") / 2**64


@dataclass(frozen=True)
class RowFile:
    """All rows of a file."""

    entries: list[Entry]
    """In the order of their digests."""
    cut: "Cut"
    levels: tuple[Level, ...]
    fingerprint: str

    @cached_property
    def by_prompt(self) -> dict[tuple[str, ...], Entry]:
        return {tuple(entry.row.prompt): entry for entry in self.entries}

    @cached_property
    def words(self) -> tuple[str, ...]:
        found = {word for entry in self.entries for part in (entry.row.prompt, entry.row.answer) for word in part}
        return tuple(sorted(found, key=lambda word: (len(word), word)))

    @cached_property
    def largest(self) -> list[tuple[int, int, int]]:
        """Return (length, most tokens, most answer tokens) of rows up to each length, the stop token included."""
        most: dict[int, tuple[int, int]] = {}
        for row, length, _ in self.entries:
            tokens, answer = most.get(length, (0, 0))
            most[length] = max(tokens, len(row.prompt) + len(row.answer) + 1), max(answer, len(row.answer) + 1)
        lengths = sorted(most)
        sizes = accumulate((most[length] for length in lengths), lambda a, b: (max(a[0], b[0]), max(a[1], b[1])))
        return [(length, *size) for length, size in zip(lengths, sizes, strict=True)]


class Cut(NamedTuple):
    """A way to cut strings into words and to join words again."""

    name: str
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]


_CHARACTERS = Cut("character", list, "".join)
_BLANKS = Cut("word", str.split, " ".join)


def _subword_cut(tokenizer: Subwords) -> Cut:
    """Return the cut of a tokenizer.  Tokens that read alike are told apart by their numbers."""
    spelt = tokenizer.vocabulary
    counts = Counter(spelt)
    names = [word if word and counts[word] == 1 else f"{word}<{number}>" for number, word in enumerate(spelt)]
    numbers = {name: number for number, name in enumerate(names)}
    return Cut(
        "tokenizer",
        lambda text: [names[number] for number in tokenizer.encode(text)],
        lambda words: tokenizer.decode([numbers[word] for word in words]),
    )


def file_state(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change of a file, or of all files in a folder."""
    with naming_damage(path):
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        facts = [(str(file), file.stat()) for file in files]
    return tuple((name, fact.st_size, fact.st_mtime_ns) for name, fact in facts)


@lru_cache(maxsize=4)
def load_file(path: Path, state: tuple[tuple[str, int, int], ...], tokens: str) -> RowFile:
    """Read a file; `state` makes the cache forget it when it changes."""
    rows = list(read_rows(path, _COLUMNS))
    if not rows:
        raise BadInput(f"{path} has no rows")
    digest = hashlib.sha256()
    for name, _, _ in state:
        with naming_damage(Path(name)):
            digest.update(Path(name).read_bytes())
    first = rows[0][1]
    cut, tokenizer_sum = _choose_cut(path, tokens, isinstance(first.get("prompt"), list))
    levels = _levels(first)
    known: dict[tuple[str, ...], tuple[str, Entry]] = {}
    for place, fields in rows:
        try:
            entry = _entry(fields, first, cut, levels)
        except (ValueError, BadInput) as error:
            raise BadInput(f"{path}, {place}: {error}") from error
        earlier, other = known.setdefault(tuple(entry.row.prompt), (place, entry))
        if other != entry:
            what = "another answer" if other.row.answer != entry.row.answer else "another length or other IDs"
            shown = cut.join(entry.row.prompt)
            raise BadInput(f"{path}, {place}: the prompt {shown!r:.60} has {what} than in {earlier}")
    entries = sorted((entry for _, entry in known.values()), key=lambda entry: entry.digest)
    return RowFile(entries, cut, levels, digest.hexdigest() + tokenizer_sum)


def _choose_cut(path: Path, tokens: str, lists: bool) -> tuple[Cut, str]:
    """Return how the strings of a file are cut, and the checksum of the tokenizer, if there is one."""
    if lists and tokens != "auto":
        raise BadInput(f"{path} holds lists of tokens, which task.tokens={tokens} cannot cut: leave it out")
    if lists or tokens == "word":
        return _BLANKS, ""
    if tokens in ("auto", "character"):
        return _CHARACTERS, ""
    tokenizer = open_subwords(tokens)
    return _subword_cut(tokenizer), f" {tokenizer.sha256}"


def _levels(first: Mapping[str, Any]) -> tuple[Level, ...]:
    """Return the levels of the IDs of the first row."""
    if "ids" not in first:
        return ()
    try:
        count = len(first["ids"][0][0])
    except (TypeError, IndexError, KeyError):  # one number for each token, or no IDs at all: `read_ids` tells
        count = 1
    return (Level("place"),) if count < 2 else tuple(Level(f"level {number + 1}") for number in range(count))


def _entry(fields: Mapping[str, Any], first: Mapping[str, Any], cut: Cut, levels: tuple[Level, ...]) -> Entry:
    """Return a row of a file; raise ValueError if it is malformed or has other columns than the first row."""
    for name in _COLUMNS:
        wanted = name in ("prompt", "answer") or name in first
        if wanted != (name in fields):
            raise ValueError(f"it has {'no ' if wanted else 'a '}{name}; its columns are {', '.join(fields)}")
    prompt, answer = (_words(fields[name], name, isinstance(first["prompt"], list), cut) for name in _COLUMNS[:2])
    if not prompt:
        raise ValueError("the prompt is empty")
    for word in (*prompt, *answer):
        if word in (PAD, END):
            raise ValueError(f"the token {word} is for padding and the end of answers")
    length = fields.get("length", len(prompt))
    if type(length) is not int or not 1 <= length <= _LONGEST:
        raise ValueError(f"length must be a whole number from 1 to {_LONGEST}, got {length!r:.40}")
    ids: dict[Form, list[list[int]]] = {}
    if levels:
        known = read_ids(fields["ids"], len(prompt), len(answer))
        for one in (*known[0], *known[1]):
            if len(one) != len(levels):
                raise ValueError(f"the first row has IDs at {len(levels)} levels, and this one {one}")
        ids = couple(*known, len(answer), has_sign=False, levels=levels)
    digest = hashlib.sha256(cut.join(prompt).encode()).digest()
    return Entry(Row(prompt=prompt, answer=answer, ids=ids), length, digest)


def _words(value: object, name: str, lists: bool, cut: Cut) -> list[str]:
    if lists and isinstance(value, list) and all(type(word) is int or (type(word) is str and word) for word in value):
        return [str(word) for word in value]
    if not lists and isinstance(value, str):
        return cut.split(value)
    kind = "a list of tokens, as in the first row" if lists else "a string"
    raise ValueError(f"{name} must be {kind}, got {value!r:.40}")
