"""Encoded shards become the files of a corpus.  Memory holds one shard at a time."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longreach.text.corpus import SPLITS, SplitMeta, SplitName, sha256_of, split_files
from longreach.text.shards import EncodedShard


def pack_shards(shards: Sequence[Path], folder: Path, tell: Callable[[int], None]) -> dict[SplitName, SplitMeta]:
    """Set the shards' documents one after the other; `tell` is given the bytes of each shard that is done."""
    documents = dict.fromkeys(SPLITS, 0)
    for path in shards:
        with EncodedShard(path) as shard:
            for name in SPLITS:
                documents[name] += len(shard.sizes(name))
    writers = {name: _SplitWriter(folder, name, documents[name]) for name in SPLITS}
    for path in shards:
        with EncodedShard(path) as shard:
            for name, writer in writers.items():
                writer.add(shard.tokens(name), shard.sizes(name), shard.bytes(name))
        tell(path.stat().st_size)
    return {name: writer.close() for name, writer in writers.items()}


class _SplitWriter:
    def __init__(self, folder: Path, name: SplitName, documents: int) -> None:
        tokens_path, self._starts_path = split_files(folder, name)
        self._file = tokens_path.open("wb")
        # a file, not an array in memory, so that a billion documents need no more memory than one
        self._starts = np.lib.format.open_memmap(self._starts_path, mode="w+", dtype=np.int64, shape=(documents + 1,))
        self._starts[0] = 0
        self._digest = hashlib.sha256()
        self._documents = self._tokens = self._bytes = 0

    def add(self, tokens: NDArray[Any], sizes: NDArray[np.int64], size: int) -> None:
        content = tokens.tobytes()
        self._file.write(content)
        self._digest.update(content)
        after = self._documents + len(sizes)
        self._starts[self._documents + 1 : after + 1] = self._tokens + np.cumsum(sizes)
        self._documents, self._tokens, self._bytes = after, self._tokens + len(tokens), self._bytes + size

    def close(self) -> SplitMeta:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._starts.flush()
        return SplitMeta(
            documents=self._documents,
            tokens=self._tokens,
            bytes=self._bytes,
            sha256=self._digest.hexdigest(),
            starts_sha256=sha256_of(self._starts_path),
        )
