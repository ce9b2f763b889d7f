"""Documents in small groups, encoded one group at a time, so that work can be shared out and taken up again.

Groups follow from the order of the documents alone, never from who encodes them: the result is the same.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from longreach.errors import BadInput
from longreach.system.files import naming_damage, write_atomically
from longreach.text.corpus import SPLITS, SplitName, token_dtype
from longreach.text.documents import Document
from longreach.text.tokenizer import Tokenizer

T = TypeVar("T")


class Shares(NamedTuple):
    """What part of the documents is held out; the rest is for training."""

    valid: float
    test: float

    def split_of(self, digest: bytes) -> SplitName:
        """By the text's own digest: a text that occurs twice is never in two splits."""
        place = int.from_bytes(digest[:8], "big") / 2**64
        return "test" if place < self.test else "valid" if place < self.test + self.valid else "train"


class Shard(NamedTuple):
    """Documents that follow each other."""

    number: int
    documents: list[Document]
    digest: str
    """Of all their texts."""


def make_shards(documents: Iterable[Document], size: int) -> Iterator[Shard]:
    """Groups of `size` bytes of text, or a little more."""
    number, group, held = 0, list[Document](), 0
    for document in documents:
        group.append(document)
        held += len(document.text)
        if held >= size:
            yield _shard(number, group)
            number, group, held = number + 1, [], 0
    if group:
        yield _shard(number, group)


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:06d}.npz"


def encode_shard(shard: Shard, shares: Shares, tokenizer: Tokenizer, folder: Path) -> None:
    """Write one file; it is whole or not there."""
    dtype = token_dtype(len(tokenizer.vocabulary))
    end = np.array([tokenizer.end])
    arrays: dict[str, NDArray[Any]] = {"digest": np.array(shard.digest)}
    for name in SPLITS:
        texts = [document.text for document in shard.documents if shares.split_of(document.digest) == name]
        encoded = [np.concatenate([tokenizer.encode_array(text), end]).astype(dtype) for text in texts]
        arrays[f"{name}.tokens"] = np.concatenate(encoded) if encoded else np.empty(0, dtype)
        arrays[f"{name}.sizes"] = np.array([len(tokens) for tokens in encoded], np.int64)
        arrays[f"{name}.bytes"] = np.array(sum(len(text.encode()) for text in texts))
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    write_atomically(shard_path(folder, shard.number), file.getvalue())


class EncodedShard:
    """A shard's file, of which each part is read when asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = self._whole(lambda: np.load(path, allow_pickle=False))

    def _whole(self, read: Callable[[], T]) -> T:
        """Return what `read` reads of the file; raise BadInput with advice if it is damaged."""
        try:
            with naming_damage(self._path):
                return read()
        except BadInput as error:
            raise BadInput(f"{self._path} is damaged: delete it, and --resume makes it again") from error

    def _part(self, name: str) -> NDArray[Any]:
        part: NDArray[Any] = self._whole(lambda: self._file[name])
        return part

    def __enter__(self) -> "EncodedShard":
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    @property
    def digest(self) -> str:
        return str(self._part("digest"))

    def tokens(self, name: SplitName) -> NDArray[Any]:
        return self._part(f"{name}.tokens")

    def sizes(self, name: SplitName) -> NDArray[np.int64]:
        """Tokens of each document."""
        return self._part(f"{name}.sizes")

    def bytes(self, name: SplitName) -> int:
        return int(self._part(f"{name}.bytes"))


def _shard(number: int, documents: list[Document]) -> Shard:
    digest = hashlib.sha256(b"".join(document.digest for document in documents)).hexdigest()
    return Shard(number, documents, digest)
