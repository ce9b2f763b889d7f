"""Retrieval by likelihood: sentences that are hidden in a text, and a question at its end.

A *needle* is the sentence `The code of NAME is VALUE.` on a line of its own.  The text ends with a line
`The code of NAME is`, and each of the 16 values is scored as its continuation.  The answer is right if the true value
has the highest log-likelihood; guessing is right in one of 16 cases.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.evaluation import choose_targets, wilson
from longreach.evaluation.context import BLOCK
from longreach.extension.texts import ReachTexts
from longreach.probe import HuggingFace, LanguageModel
from longreach.seeding import generator, stream

NAMES = (
    *("Anna", "Boris", "Clara", "David", "Emma", "Frank", "Grace", "Henry"),
    *("Irene", "Jacob", "Karen", "Louis", "Maria", "Nora", "Oscar", "Peter"),
)
VALUES = (
    *("army", "bird", "corn", "door", "fish", "gold", "hand", "iron"),
    *("king", "lake", "moon", "nest", "rain", "salt", "tree", "wind"),
)
"""Common words of four lower-case letters, each with another first letter."""
RETRIEVED = 0.8
"""Share of right answers from which a context counts as retrieved."""
_SNAP = 32
"""Tokens by which a needle may move towards the beginning of the text, to stand in front of a word."""
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}


@dataclass(frozen=True)
class RetrievalScore:
    """Right answers at one size of context, with so many needles, the asked one at one depth."""

    context: int
    needles: int
    """0 is the baseline: the same text and question without needles."""
    depth: float | None
    """Share of the text in front of the asked needle; None in the baseline."""
    right: int
    questions: int

    def interval(self) -> tuple[float, float]:
        """Return Wilson's interval of the share of right answers (95%)."""
        return wilson(self.right, self.questions)


@dataclass(frozen=True)
class _Question:
    """A text of exactly the size of the context, and what is asked at its end."""

    prefix: list[int]
    values: list[list[int]]
    """Tokens of each value as the continuation of the text."""
    true: int


class NeedleTexts:
    """Builds questions from texts of a model."""

    def __init__(self, model: HuggingFace, texts: ReachTexts, longest: int, seed: int) -> None:
        """`longest` is the largest context."""
        self.opening, self.texts, self.longest, self.seed = model.opening, texts, longest, seed
        self.split = texts.cut(longest)
        self.name = model.name
        self._asked = {name: self._ask(name) for name in NAMES}
        self.largest_needle = max(len(self._needle(name, VALUES[0])) for name in NAMES)
        self.largest_value = max(len(value) for _, values in self._asked.values() for value in values)

    def _needle(self, name: str, value: str) -> list[int]:
        return self.texts.encode(f"\nThe code of {name} is {value}.\n")

    def _ask(self, name: str) -> tuple[list[int], list[list[int]]]:
        """Return the tokens of the question, and those that each value adds to them."""
        whole = [self.texts.encode(f"\nThe code of {name} is {value}") for value in VALUES]
        shared = 0
        while all(len(row) > shared and row[shared] == whole[0][shared] for row in whole):
            shared += 1
        values = [row[shared:] for row in whole]
        if not all(values) or len({tuple(value) for value in values}) < len(VALUES):
            raise BadInput(
                f"the tokenizer of {self.name} cannot tell the words {', '.join(VALUES)} apart, which retrieval needs:"
                " leave retrieval out"
            )
        return whole[0][:shared], values

    def smallest_context(self, needles: int) -> int:
        """Return the smallest context of which needles and question take at most half."""
        question = max(len(prompt) for prompt, _ in self._asked.values())
        return 2 * (len(self.opening) + question + needles * self.largest_needle)

    def cells(self, contexts: Iterable[int], needles: Sequence[int]) -> list[tuple[int, int]]:
        """Return context and number of needles of all that is asked; 0 needles are the baseline.

        A context has no room for needles if they and the question take more than half of it.
        """
        pairs = [(context, number) for context in contexts for number in (0, *needles)]
        return [(size, number) for size, number in pairs if size >= self.smallest_context(number or min(needles))]

    def questions(self, context: int, needles: int, depths: Sequence[float], count: int) -> Iterator[_Question]:
        """Yield `count` questions for each depth of the asked needle.

        Names, values and places in the texts are the same for every context and number of needles.
        """
        targets = choose_targets(self.split, BLOCK * count * len(depths), self.longest, self.seed)
        for number, start in enumerate(targets.start.tolist()):
            draws = generator(self.seed, f"needles/{number}")
            names = torch.randperm(len(NAMES), generator=draws).tolist()
            others = torch.randint(len(VALUES), (len(NAMES),), generator=draws).tolist()
            places = torch.rand(len(NAMES), generator=draws).tolist()
            order = torch.randperm(len(VALUES), generator=generator(self.seed, f"values/{number // len(VALUES)}"))
            true = int(order[number % len(VALUES)])
            prompt, values = self._asked[NAMES[names[0]]]
            hidden = [(depths[number // count], self._needle(NAMES[names[0]], VALUES[true]))] if needles else []
            hidden += [(places[one], self._needle(NAMES[names[one]], VALUES[others[one]])) for one in range(1, needles)]
            room = context - len(self.opening) - len(prompt) - sum(len(tokens) for _, tokens in hidden)
            text = self.split.tokens[start - room : start].tolist()
            yield _Question(self.opening + self._hide(text, hidden) + prompt, values, true)

    def _hide(self, text: list[int], hidden: Sequence[tuple[float, list[int]]]) -> list[int]:
        """Return the text with each needle at its depth, in front of a word where one begins nearby."""
        at = sorted((self._place(text, depth), tokens) for depth, tokens in hidden)
        found, before = [], 0
        for place, tokens in at:
            found += text[before:place] + tokens
            before = place
        return found + text[before:]

    def _place(self, text: list[int], depth: float) -> int:
        place = round(depth * len(text))
        if place == len(text):
            return place
        nearby = range(place, max(0, place - _SNAP), -1)
        return next((one for one in nearby if self.texts.piece(text[one])[:1].isspace()), place)


Scorer = Callable[[Int[Tensor, "b t"], Sequence[Sequence[Sequence[int]]]], Float[Tensor, "b v"]]
"""Return the log-likelihood of every value of every row, as the continuation of the row."""


def scorer(model: LanguageModel, batch_tokens: int) -> Scorer:
    """Return a function that scores continuations: with the cache where the model allows it, else by plain passes."""
    if not isinstance(model, HuggingFace) or not _cache_agrees(model):
        return _Plain(model, batch_tokens)
    return _Cached(model, batch_tokens)


@dataclass(frozen=True)
class _Plain:
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
class _Cached:
    """Scores continuations after the cached keys and values of the shared prefix."""

    model: HuggingFace
    batch_tokens: int

    @torch.no_grad()
    def __call__(self, prefix: Int[Tensor, "b t"], values: Sequence[Sequence[Sequence[int]]]) -> Float[Tensor, "b v"]:
        pairs, rest, wanted, is_wanted = _further(values, prefix.device)
        if not len(pairs):
            return _Plain(self.model, self.batch_tokens)(prefix, values)
        size = prefix.shape[1]
        read = self._read(prefix, torch.ones_like(prefix), _positions(prefix), None)
        scores = _Plain._first(read.logits[:, -1], values)
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


def _cache_agrees(model: HuggingFace) -> bool:
    """Return whether values scored with the cache have the likelihoods of plain passes."""
    from transformers import cache_utils  # takes seconds

    size = min(16, model.longest - 4) if model.longest is not None else 16
    draws = stream(0, "retrieval/check", torch.arange(2, device=model.device))
    tokens = draws.below("tokens", model.vocabulary_size, size + 6)
    one = model.model(input_ids=tokens[:, :size], attention_mask=torch.ones_like(tokens[:, :size]), use_cache=True)
    layers = getattr(one.get("past_key_values"), "layers", None)
    if not layers or not all(isinstance(layer, cache_utils.DynamicLayer) for layer in layers):
        return False
    values = [[row[:3], row[3:5], row[5:]] for row in tokens[:, size:].tolist()]
    with_cache = _Cached(model, 1 << 16)(tokens[:, :size], values)
    plain = _Plain(model, 1 << 16)(tokens[:, :size], values)
    return torch.allclose(with_cache, plain, rtol=0, atol=_TOLERANCE.get(model.model.dtype, 0.25))


def measure_retrieval(
    score: Scorer,
    needle_texts: NeedleTexts,
    cells: Sequence[tuple[int, int]],
    depths: Sequence[float],
    count: int,
    rows: Callable[[int], int],
    device: torch.device,
    progress: Callable[[int, str], None] = lambda done, note: None,
) -> list[RetrievalScore]:
    """Return the right answers by context, number of needles and depth; `cells` are those of `NeedleTexts`.

    `rows` returns how many texts of a size are computed at once.
    """
    found, done = [], 0
    for context, number in cells:
        asked = list(needle_texts.questions(context, number, depths, count))
        right: list[bool] = []
        for start in range(0, len(asked), rows(context)):
            some = asked[start : start + rows(context)]
            prefix = torch.tensor([one.prefix for one in some], device=device)
            best = score(prefix, [one.values for one in some]).argmax(1).tolist()
            right += [guess == one.true for guess, one in zip(best, some, strict=True)]
            done += len(some)
            progress(done, f"{number or 'no'} needle{'s' * (number != 1)}, context {context}")
        if number == 0:
            found.append(RetrievalScore(context, 0, None, sum(right), len(right)))
            continue
        for place, depth in enumerate(depths):
            part = right[place * count : (place + 1) * count]
            found.append(RetrievalScore(context, number, depth, sum(part), len(part)))
    return found
