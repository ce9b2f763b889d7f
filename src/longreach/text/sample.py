"""A sample of the training documents, for a tokenizer to learn from."""

import heapq
from collections.abc import Iterable

from longreach.text.documents import Document
from longreach.text.shards import Shares


def draw_sample(documents: Iterable[Document], shares: Shares, size: int) -> list[str]:
    """The training documents with the smallest digests that together have `size` bytes at most, but at least one.
    As good as random, the same in every order of reading, and no more than `size` bytes are held on the way."""
    heap: list[tuple[int, int, str]] = []  # the largest digest first, and the number that tells equal ones apart
    held, limit = 0, 1 << 256
    for number, document in enumerate(documents):
        place = int.from_bytes(document.digest, "big")
        if place >= limit or shares.split_of(document.digest) != "train":
            continue
        heapq.heappush(heap, (-place, number, document.text))
        held += len(document.text.encode())
        while held > size and len(heap) > 1:
            above, _, text = heapq.heappop(heap)
            held -= len(text.encode())
            limit = -above  # or a larger digest could take the room that this one leaves
    return [text for _, _, text in sorted(heap, reverse=True)]
