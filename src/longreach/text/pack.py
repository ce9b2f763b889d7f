"""Encoded shards become the files of a corpus.  Memory holds one shard at a time."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longreach.text.corpus import SplitMeta, SplitName, sha256_of, split_files
from longreach.text.shards import EncodedShard


def pack_split(shards: Sequence[Path], folder: Path, name: SplitName) -> SplitMeta:
    """Set the shards' documents one after the other."""
    tokens_path, starts_path = split_files(folder, name)
    documents = sum(_count(shard, name) for shard in shards)
    starts = np.lib.format.open_memmap(starts_path, mode="w+", dtype=np.int64, shape=(documents + 1,))
    starts[0] = 0
    done = tokens = size = 0
    digest = hashlib.sha256()
    with tokens_path.open("wb") as file:
        for path in shards:
            with EncodedShard(path) as shard:
                content = shard.tokens(name).tobytes()
                sizes = shard.sizes(name)
                size += shard.bytes(name)
            file.write(content)
            digest.update(content)
            starts[done + 1 : done + 1 + len(sizes)] = tokens + np.cumsum(sizes)
            done += len(sizes)
            tokens += int(sizes.sum())
        file.flush()
        os.fsync(file.fileno())
    starts.flush()
    del starts
    return SplitMeta(
        documents=documents,
        tokens=tokens,
        bytes=size,
        sha256=digest.hexdigest(),
        starts_sha256=sha256_of(starts_path),
    )


def _count(path: Path, name: SplitName) -> int:
    with EncodedShard(path) as shard:
        return len(shard.sizes(name))
