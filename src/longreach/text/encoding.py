"""Shards are encoded here, or by several processes at once."""

import os
import signal
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from longreach.errors import RunFailed
from longreach.text.corpus import load_tokenizer
from longreach.text.shards import Shard, Shares, encode_shard
from longreach.text.tokenizer import Tokenizer


def encode_all(
    shards: Iterable[Shard],
    shares: Shares,
    tokenizer: Tokenizer,
    tokenizer_folder: Path,
    folder: Path,
    workers: int,
) -> None:
    """Write a file for each shard.  Only `workers` + 1 of them are in memory."""
    if workers == 1:
        for shard in shards:
            encode_shard(shard, shares, tokenizer, folder)
        return
    identity = (tokenizer.kind, tokenizer.end, tokenizer_folder)
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, identity) as pool:
        try:
            pending: set[Future[None]] = set()
            for shard in shards:
                pending.add(pool.submit(_encode, shard, shares, folder))
                if len(pending) > workers:
                    pending = _finish_one(pending)
            while pending:
                pending = _finish_one(pending)
        except BrokenProcessPool as error:
            raise RunFailed(
                "a worker died, perhaps for want of memory: --resume goes on, with fewer --workers"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _finish_one(pending: set[Future[None]]) -> set[Future[None]]:
    done, rest = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        future.result()
    return rest


_tokenizer: Tokenizer
"""Of a worker, which loads it once."""


def _begin(kind: str, end: int, folder: Path) -> None:
    global _tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that hands out the work
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer = load_tokenizer(kind, end, folder)


def _encode(shard: Shard, shares: Shares, folder: Path) -> None:
    encode_shard(shard, shares, _tokenizer, folder)
