"""A prepared corpus: tokens of every split on disk, mapped into memory when read.

A folder holds, for each split, `NAME.bin` (the documents one after the other, each followed by the end token) and
`NAME.starts.npy` (where each begins, and where the last one ends); the tokenizer's files in `tokenizer/`; and
`meta.json`, which is written last: a folder without it is not finished.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from longreach.config import build
from longreach.errors import BadInput
from longreach.system.files import naming_damage, read_json, write_atomically
from longreach.text.subwords import load_subwords
from longreach.text.tokenizer import Bytes, Tokenizer

SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
KINDS = ("bytes", "bpe", "hf")
"""Of tokenizers."""
SCHEMA = 1
_CHECKED_AT_ONCE = 1 << 22
"""Tokens, or bytes, that a check holds in memory."""
_VERIFIED: set[tuple[str, int, int, str]] = set()
"""Path, size, time of change and SHA-256 of files that this process has verified."""


@dataclass(frozen=True, kw_only=True)
class SplitMeta:
    """What a split must hold."""

    documents: int
    tokens: int
    """End tokens included."""
    bytes: int
    """Of UTF-8 text, without end tokens."""
    sha256: str
    """Of the tokens' file."""
    starts_sha256: str

    def __post_init__(self) -> None:
        for name in ("documents", "tokens", "bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is negative: {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What `meta.json` says.  Equal texts and settings give equal files, so there are no dates in it."""

    schema: int
    sources: list[str]
    settings: Mapping[str, Any]
    """How it was prepared, as far as it concerns the result."""
    tokenizer: str
    """bytes, bpe or hf."""
    vocabulary: int
    end: int
    tokenizer_sha256: Mapping[str, str]
    """By file."""
    splits: Mapping[SplitName, SplitMeta]

    @property
    def dtype(self) -> "np.dtype[Any]":
        return token_dtype(self.vocabulary)

    @classmethod
    def read(cls, folder: Path) -> "Meta":
        path = folder / "meta.json"
        if not path.exists():
            state = (
                "is not a prepared corpus, or not finished: it has no meta.json" if folder.is_dir() else "is no folder"
            )
            raise BadInput(f"{folder} {state}")
        schema, plain = read_json(path, lambda plain: (plain["schema"], plain))
        if schema != SCHEMA:
            raise BadInput(f"{path} has schema {schema!r:.20}, and this version reads {SCHEMA}: prepare it again")
        with naming_damage(path):
            return build(cls, plain)

    def __post_init__(self) -> None:
        for name in SPLITS:
            if name not in self.splits:
                raise ValueError(f"it has no split {name}")

    def write(self, folder: Path) -> None:
        write_atomically(folder / "meta.json", (json.dumps(asdict(self), indent=1) + "\n").encode())


@dataclass(frozen=True)
class Split:
    """The documents of one split."""

    name: SplitName
    tokens: NDArray[Any]
    """One-dimensional and read-only, mapped from disk."""
    starts: NDArray[np.int64]
    """[documents + 1] where each document begins; the last entry is the number of tokens."""

    @property
    def documents(self) -> int:
        return len(self.starts) - 1

    def document(self, number: int) -> NDArray[Any]:
        """The tokens of one document; the last is the end token."""
        return self.tokens[self.starts[number] : self.starts[number + 1]]


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus, opened by `Corpus.open`."""

    folder: Path
    meta: Meta
    tokenizer: Tokenizer

    @classmethod
    def open(cls, folder: Path | str) -> "Corpus":
        """Open a corpus and check sizes and counts; `verify` and `check` read everything."""
        folder = Path(folder)
        meta = Meta.read(folder)
        tokenizer = load_tokenizer(meta.tokenizer, meta.end, folder / "tokenizer")
        if len(tokenizer.vocabulary) != meta.vocabulary:
            raise BadInput(f"{folder}: the tokenizer has {len(tokenizer.vocabulary)} tokens, not {meta.vocabulary}")
        corpus = cls(folder, meta, tokenizer)
        for name in SPLITS:
            corpus.split(name)
        return corpus

    def split(self, name: SplitName) -> Split:
        if name not in SPLITS:
            raise BadInput(f"unknown split {name!r}; known: {', '.join(SPLITS)}")
        meta, (tokens, starts) = self.meta.splits[name], split_files(self.folder, name)
        with naming_damage(tokens):
            size = tokens.stat().st_size
        with naming_damage(starts):
            begins = np.load(starts, mmap_mode="r", allow_pickle=False)
        if size != meta.tokens * self.meta.dtype.itemsize:
            raise BadInput(f"{tokens} has {size} bytes, which is not {meta.tokens} tokens of {self.meta.dtype}")
        if begins.dtype != np.int64 or begins.shape != (meta.documents + 1,):
            raise BadInput(f"{starts} does not hold {meta.documents} + 1 numbers of int64")
        if begins[0] != 0 or begins[-1] != meta.tokens:
            raise BadInput(f"{starts} does not go from 0 to {meta.tokens}")
        return Split(name, _map_tokens(tokens, self.meta.dtype, size), begins)

    @cached_property
    def fingerprint(self) -> str:
        """The same for two corpora if and only if their tokens and tokenizers are."""
        sums = [split.sha256 + split.starts_sha256 for split in self.meta.splits.values()]
        sums += [f"{name} {value}" for name, value in sorted(self.meta.tokenizer_sha256.items())]
        return hashlib.sha256("\n".join([self.meta.tokenizer, *sums]).encode()).hexdigest()

    def check(self) -> None:
        """Read everything: checksums, end tokens, numbers that the vocabulary has."""
        for path, expected in self._checksums():
            _compare(path, expected)
        for name in SPLITS:
            self._check_tokens(self.split(name))

    def verify(self) -> None:
        """Compare every file with its checksum; raise `BadInput` that names a file that differs.

        A file is read once per process as long as its size and time of change stay the same.
        """
        for path, expected in self._checksums():
            if not path.is_file():
                raise BadInput(f"{path} is missing")
            facts = path.stat()
            seen = (str(path.resolve()), facts.st_size, facts.st_mtime_ns, expected)
            if seen not in _VERIFIED:
                _compare(path, expected)
                _VERIFIED.add(seen)

    def _checksums(self) -> Iterator[tuple[Path, str]]:
        """Yield every file with its SHA-256."""
        for file, expected in self.meta.tokenizer_sha256.items():
            yield self.folder / "tokenizer" / file, expected
        for name in SPLITS:
            tokens, starts = split_files(self.folder, name)
            yield tokens, self.meta.splits[name].sha256
            yield starts, self.meta.splits[name].starts_sha256

    def _check_tokens(self, split: Split) -> None:
        for first in range(0, len(split.tokens), _CHECKED_AT_ONCE):
            part = split.tokens[first : first + _CHECKED_AT_ONCE]
            if part.max() >= self.meta.vocabulary:
                raise BadInput(f"{self.folder}: split {split.name} has a token beyond the vocabulary: {part.max()}")
        for first in range(0, split.documents, _CHECKED_AT_ONCE):
            starts = split.starts[first : first + _CHECKED_AT_ONCE + 1]
            if (np.diff(starts) < 1).any() or (split.tokens[starts[1:] - 1] != self.meta.end).any():
                raise BadInput(f"{self.folder}: split {split.name} has a document without its end token")


def token_dtype(vocabulary: int) -> "np.dtype[Any]":
    """Little-endian, on every machine."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


def split_files(folder: Path, name: SplitName) -> tuple[Path, Path]:
    return folder / f"{name}.bin", folder / f"{name}.starts.npy"


def load_tokenizer(kind: str, end: int, folder: Path) -> Tokenizer:
    """As `Tokenizer.save` left it; `kind` and `end` are the tokenizer's own."""
    if kind not in KINDS:
        raise BadInput(f"unknown kind of tokenizer {kind!r}; known: {', '.join(KINDS)}")
    return Bytes() if kind == "bytes" else load_subwords(kind, end, folder)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _map_tokens(path: Path, dtype: "np.dtype[Any]", size: int) -> NDArray[Any]:
    if size == 0:  # which cannot be mapped
        empty = np.empty(0, dtype)
        empty.flags.writeable = False
        return empty
    return np.memmap(path, dtype, mode="r")


def _compare(path: Path, expected: str) -> None:
    if not path.is_file():
        raise BadInput(f"{path} is missing")
    found = sha256_of(path)
    if found != expected:
        raise BadInput(f"{path} is not what was written: sha256 is {found[:12]}..., not {expected[:12]}...")
