"""Log-likelihoods of continuations of one text, with the cached keys and values of the text where a model allows it."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.probe import HuggingFace, LanguageModel
from longreach.seeding import stream
from longreach.system.huggingface import import_transformers

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Largest difference of log-likelihoods with and without a cache; of other types it is that of bf16."""

Scorer = Callable[[Int[Tensor, "b t"], Sequence[Sequence[Sequence[int]]]], Float[Tensor, "b v"]]
"""Return the log-likelihood of every value of every row, as the continuation of the row."""


def scorer(model: LanguageModel, batch_tokens: int) -> Scorer:
    """Return a function that scores continuations: with the cache where the model allows it, else by plain passes."""
    if not isinstance(model, HuggingFace) or not cache_agrees(model):
        return PlainScorer(model, batch_tokens)
    return CachedScorer(model, batch_tokens)


@dataclass(frozen=True)
class PlainScorer:
    """Scores continuations by one pass over each."""

    model: LanguageModel
    batch_tokens: int

    @torch.no_grad()
    def __call__(self, prefix: Int[Tensor, "b t"], values: Sequence[Sequence[Sequence[int]]]) -> Float[Tensor, "b v"]:
        size = prefix.shape[1]
        last = torch.tensor([size - 1], device=prefix.device)
        scores = self._first(self.model.scores(prefix, _positions(prefix), None, last)[:, 0], values)
        pairs, rest, wanted, is_wanted = _further(values, prefix.device)
        most = max(1, self.batch_tokens // (size + rest.shape[1]))
        at = torch.arange(size, size + rest.shape[1], device=prefix.device)
        for some in _parts(len(pairs), most):
            rows, columns = pairs[some].T
            tokens = torch.cat([prefix[rows], rest[some]], dim=1)
            logits = self.model.scores(tokens, _positions(tokens), None, at)
            scores[rows, columns] += _likelihood(logits, wanted[some], is_wanted[some])
        return scores

    @staticmethod
    def _first(logits: Float[Tensor, "b n"], values: Sequence[Sequence[Sequence[int]]]) -> Float[Tensor, "b v"]:
        first = torch.tensor([[value[0] for value in row] for row in values], device=logits.device)
        return logits.float().log_softmax(-1).gather(1, first)


@dataclass(frozen=True)
class CachedScorer:
    """Scores continuations after the cached keys and values of the shared prefix."""

    model: HuggingFace
    batch_tokens: int

    @torch.no_grad()
    def __call__(self, prefix: Int[Tensor, "b t"], values: Sequence[Sequence[Sequence[int]]]) -> Float[Tensor, "b v"]:
        pairs, rest, wanted, is_wanted = _further(values, prefix.device)
        if not len(pairs):
            return PlainScorer(self.model, self.batch_tokens)(prefix, values)
        size = prefix.shape[1]
        read = self._read(prefix, torch.ones_like(prefix), _positions(prefix), None)
        scores = PlainScorer._first(read.logits[:, -1], values)
        cache = read.past_key_values
        held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers) // len(prefix)
        positions = torch.arange(size, size + rest.shape[1], device=prefix.device)
        for some in _parts(len(pairs), max(1, self.model.memory // held)):
            rows, columns = pairs[some].T
            copied = copy.copy(cache)
            copied.layers = [copy.copy(layer) for layer in cache.layers]  # tensors are replaced, never written to
            copied.batch_select_indices(rows.to(prefix.device))
            mask = prefix.new_ones(len(rows), size + rest.shape[1])
            logits = self._read(rest[some], mask, positions.expand(len(rows), -1), copied).logits
            scores[rows, columns] += _likelihood(logits, wanted[some], is_wanted[some])
        return scores

    def _read(
        self, tokens: Int[Tensor, "b r"], mask: Int[Tensor, "b s"], positions: Int[Tensor, "b r"], cache: Any
    ) -> Any:
        """Return the output of the model; without a cache, logits of the last token only, and a new cache."""
        kept = {"logits_to_keep": 1} if cache is None else {"past_key_values": cache}
        return self.model.model(input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=True, **kept)


def _parts(count: int, most: int) -> Iterator[slice]:
    """Yield slices of at most `most` numbers."""
    return (slice(start, start + most) for start in range(0, count, most))


def _positions(tokens: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)


def _further(
    values: Sequence[Sequence[Sequence[int]]], device: torch.device
) -> tuple[Int[Tensor, "n two"], Int[Tensor, "n r"], Int[Tensor, "n r"], Bool[Tensor, "n r"]]:
    """Return row and number of each value of several tokens, its tokens but the last, and those but the first.

    The tokens are padded on the right, where the mask that follows is false.
    """
    long = [(r, v, value) for r, row in enumerate(values) for v, value in enumerate(row) if len(value) > 1]
    width = max((len(value) - 1 for _, _, value in long), default=0)
    padded = torch.zeros(len(long), width + 1, dtype=torch.long)
    is_wanted = torch.zeros(len(long), width, dtype=torch.bool)
    for number, (_, _, value) in enumerate(long):
        padded[number, : len(value)] = torch.tensor(value)
        is_wanted[number, : len(value) - 1] = True
    pairs = torch.tensor([(r, v) for r, v, _ in long], dtype=torch.long).view(-1, 2)
    padded, is_wanted = padded.to(device), is_wanted.to(device)
    return pairs, padded[:, :-1], padded[:, 1:], is_wanted


def _likelihood(
    logits: Float[Tensor, "n r v"], wanted: Int[Tensor, "n r"], is_wanted: Bool[Tensor, "n r"]
) -> Float[Tensor, "n"]:
    found = logits.float().log_softmax(-1).gather(2, wanted[..., None])[..., 0]
    return found.masked_fill(~is_wanted, 0).sum(1)


@torch.no_grad()
def cache_agrees(model: HuggingFace) -> bool:
    """Return whether values scored with the cache have the likelihoods of plain passes."""
    cache_utils = import_transformers("a cache", "cache_utils")
    size = min(16, model.longest - 4) if model.longest is not None else 16
    draws = stream(0, "retrieval/check", torch.arange(2, device=model.device))
    tokens = draws.below("tokens", model.vocabulary_size, size + 6)
    one = model.model(input_ids=tokens[:, :size], attention_mask=torch.ones_like(tokens[:, :size]), use_cache=True)
    layers = getattr(one.get("past_key_values"), "layers", None)
    if not layers or not all(isinstance(layer, cache_utils.DynamicLayer) for layer in layers):
        return False
    values = [[row[:3], row[3:5], row[5:]] for row in tokens[:, size:].tolist()]
    with_cache = CachedScorer(model, 1 << 16)(tokens[:, :size], values)
    plain = PlainScorer(model, 1 << 16)(tokens[:, :size], values)
    return torch.allclose(with_cache, plain, rtol=0, atol=_TOLERANCE.get(model.model.dtype, 0.25))
