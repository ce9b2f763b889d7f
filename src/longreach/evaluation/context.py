"""Loss by length: the same tokens of a text, predicted from contexts of different sizes; and loss by position.

A token predicted from c tokens needs a pass over c tokens, and the next token another.  A window of c + s tokens
predicts its last s tokens from c to c + s - 1 tokens: with s an eighth of c, and at most a block, nine tokens are
computed for each that is predicted up to 512 tokens of context, and c / 64 beyond; contexts are longer than said by at
most an eighth.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.system.files import naming_damage
from longreach.text import Split

BLOCK = 64
"""Tokens predicted in a row, so that one window serves several."""

Predict = Callable[[Int[Tensor, "b t"], int], tuple[Float[Tensor, "b last"], Bool[Tensor, "b last"]]]
"""From windows, and how many of the last tokens of each are wanted: the loss of each of these tokens, in nats, given
all that stands before it in its window, and whether it is the likeliest."""


@dataclass(frozen=True)
class Targets:
    """Blocks of tokens that are predicted, each within one document and far from its beginning."""

    start: Int[Tensor, "blocks"]
    """Where each block begins in the split."""
    document: Int[Tensor, "blocks"]

    @property
    def documents(self) -> Int[Tensor, "n"]:
        """The document of each token."""
        return self.document.repeat_interleave(BLOCK)


def choose_targets(split: Split, tokens: int, most_context: int, seed: int) -> Targets:
    """About so many tokens, in blocks, each with so much context in its document.  The same for every model."""
    starts = torch.tensor(split.starts)
    if len(starts) < 2:
        raise BadInput(f"the split {split.name} has no documents")
    room = starts[1:] - starts[:-1] - most_context - BLOCK
    if not bool((room >= 0).any()):
        longest = int((starts[1:] - starts[:-1]).max()) - BLOCK
        raise BadInput(
            f"no document has {most_context} tokens of context and {BLOCK} to predict;"
            f" the longest has {longest} of context"
        )
    places = (room + 1).clamp(min=0).cumsum(0)
    draws = stream(seed, "targets", torch.arange(max(1, tokens // BLOCK)))
    number = (draws.uniform("block", 1)[:, 0] * places[-1]).long()
    document = torch.searchsorted(places, number, right=True)
    before = torch.where(document > 0, places[document - 1], 0)
    return Targets(starts[document] + most_context + number - before, document)


@dataclass(frozen=True)
class ContextLoss:
    """Of each token predicted, for each size of context."""

    contexts: tuple[int, ...]
    nats: Float[Tensor, "c n"]
    right: Bool[Tensor, "c n"]
    token: Int[Tensor, "n"]
    place: Int[Tensor, "n"]
    """Where the token stands in its split."""
    document: Int[Tensor, "n"]

    def save(self, path: Path) -> None:
        tensors = {name: getattr(self, name) for name in ("nats", "right", "token", "place", "document")}
        save_file({"contexts": torch.tensor(self.contexts), **tensors}, path)

    @staticmethod
    def load(path: Path) -> "ContextLoss":
        with naming_damage(path):
            tensors = load_file(path)
            return ContextLoss(tuple(tensors.pop("contexts").tolist()), **tensors)


def predicted_at_once(context: int) -> int:
    """Tokens that a window predicts: a power of two, so that blocks split evenly."""
    return 1 << max(0, min(BLOCK, context // 8).bit_length() - 1)


def loss_by_context(
    predict: Predict,
    split: Split,
    targets: Targets,
    contexts: Sequence[int],
    batch_tokens: int,
    device: str,
    progress: Callable[[int, str], None] = lambda done, note: None,
) -> ContextLoss:
    """The targets' losses; `progress` hears how many of len(contexts) * targets are done."""
    place = (targets.start[:, None] + torch.arange(BLOCK)).flatten()
    nats, right, done = [], [], 0
    for context in contexts:
        last = predicted_at_once(context)
        rows = []
        for windows in _windows(split, place.view(-1, last)[:, 0], context, last, batch_tokens):
            loss, hit = predict(windows.to(device), last)
            rows.append((loss.cpu(), hit.cpu()))
            done += hit.numel()
            progress(done, f"context {context}")
        nats.append(torch.cat([loss for loss, _ in rows]).flatten().float())
        right.append(torch.cat([hit for _, hit in rows]).flatten())
    token = _read(split, place)
    return ContextLoss(tuple(contexts), torch.stack(nats), torch.stack(right), token, place, targets.documents)


@dataclass(frozen=True)
class PositionLoss:
    """Mean loss of tokens by their position in a window, in buckets: the one from `edges[i]` ends before the next."""

    edges: Int[Tensor, "k1"]
    nats: Float[Tensor, "blocks k"]
    document: Int[Tensor, "blocks"]


def loss_by_position(
    predict: Predict,
    split: Split,
    targets: Targets,
    window: int,
    batch_tokens: int,
    device: str,
    progress: Callable[[int, str], None] = lambda done, note: None,
) -> PositionLoss:
    """Of all tokens in windows of so many tokens that end with the targets' blocks.  Each position has other tokens, of
    the same documents."""
    edges = [1]
    while edges[-1] < window:
        edges.append(min(window, max(edges[-1] + 1, round(edges[-1] * 2**0.5))))
    counts = torch.diff(torch.tensor(edges))
    bucket = torch.repeat_interleave(torch.arange(len(counts)), counts)
    rows: list[Tensor] = []
    for windows in _windows(split, targets.start + BLOCK, window, 0, batch_tokens):
        loss, _ = predict(windows.to(device), window - 1)
        sums = torch.zeros(len(loss), len(counts)).index_add_(1, bucket, loss.cpu().float())
        rows.append(sums / counts)
        progress(sum(map(len, rows)), "by position")
    return PositionLoss(torch.tensor(edges), torch.cat(rows), targets.document)


def _windows(
    split: Split, first: Int[Tensor, "w"], before: int, after: int, batch_tokens: int
) -> Iterator[Int[Tensor, "b t"]]:
    """Tokens around the places `first`, as many windows at once as the budget allows."""
    offsets = torch.arange(-before, after)
    size = max(1, batch_tokens // (before + after))
    for start in range(0, len(first), size):
        part = first[start : start + size]
        yield _read(split, part[:, None] + offsets)


def _read(split: Split, places: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    return torch.from_numpy(split.tokens[places.numpy()].astype("int64"))
