"""What a task is: it draws samples, knows the answer, and says what each answer token depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config import Bounds, Settings
from longreach.config.registry import kind, name_of, nearest
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.text import SplitName

PAD = 0
"""Token 0 of every vocabulary is padding."""

Form = Literal["published", "aligned"]
"""Two ways to couple: as published, or so that a step shares its ID with what it must read."""


class NotStated(BadInput):
    """A task does not define something that is not required, such as its dependencies."""


@dataclass(frozen=True)
class Sample:
    """A batch of samples, right-padded."""

    tokens: Int[Tensor, "b t"]
    answer: Bool[Tensor, "b t"]
    """True at the index of each token that must be predicted."""
    given: Bool[Tensor, "b t"]
    """Tokens inside the answer that are drawn, not predicted: decoding is handed them."""
    length: Int[Tensor, "b"]
    """The task's own measure of size."""
    num_tokens: Int[Tensor, "b"]
    prompt_tokens: Int[Tensor, "b"]
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    """What the sampler knows and the tokens do not show; a model never sees it."""

    def map(self, change: "Any") -> "Sample":
        """Apply a function to every tensor."""
        tensors = {f.name: change(getattr(self, f.name)) for f in fields(self) if f.name != "hidden"}
        return Sample(**tensors, hidden={name: change(tensor) for name, tensor in self.hidden.items()})

    def tensors(self) -> list[Tensor]:
        own = [getattr(self, f.name) for f in fields(self) if f.name != "hidden"]
        return [*own, *self.hidden.values()]

    def rows(self, start: int, stop: int) -> "Sample":
        return self.map(lambda tensor: tensor[start:stop])

    def prompt_only(self) -> "Sample":
        """The same batch with every predicted token erased: all that decoding may see."""
        erased = self.tokens.masked_fill(self.answer & ~self.given, PAD)
        return replace(self, tokens=erased, hidden={})


@dataclass(frozen=True)
class Level:
    """One level of coupled IDs."""

    name: str
    size: int = 0
    """IDs go from 1 to this number at every length, and are never relabelled; 0 where they grow with length."""
    space: str = ""
    """Levels of one space count the same places, so that equal IDs mean equal places: they are relabelled as one.
    Empty: the level has a space of its own."""

    @property
    def grows(self) -> bool:
        return self.size == 0


@kind("task")
@dataclass(frozen=True, kw_only=True)
class Task(Settings):
    """Base of all tasks.  A subclass must give `vocabulary`, `max_tokens`, `sample` and `solve`;
    what it does not give of the rest is refused with a clear message when asked for."""

    paper: ClassVar[str] = ""
    """Where the task comes from; empty where it is ours."""
    _bounds = Bounds(high=1_000_000)  # most are sizes of a vocabulary, whose words all lie in memory

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens as a person reads them; the first is padding.  A plain class attribute will do."""
        raise self._missing("what its tokens are")

    @property
    def stop_token(self) -> int | None:
        """The token that ends an answer, or None where every answer is one token."""
        return None

    @property
    def has_given(self) -> bool:
        """Whether parts of an answer are drawn and given, so that a prompt alone does not make a sample."""
        return False

    @property
    def draws_on_host(self) -> bool:
        """Return whether samples are drawn in Python on the CPU, whatever the device: see `PlainTask`."""
        return False

    @property
    def open_ended(self) -> bool:
        """Whether there is no right answer, only a more or less likely one: then the loss counts, not exact match."""
        return False

    @property
    def reads_files(self) -> bool:
        """Return whether samples are read from files that a setting names, and not drawn."""
        return False

    @property
    def fingerprint(self) -> str:
        """Return a checksum of the files that samples are read from; empty where samples are drawn."""
        return ""

    def held_out(self, split: SplitName, longest: int = 0) -> "Task":
        """Return the task on material that training does not show; where every sample is drawn anew, itself.

        `longest` is the longest length of training, 0 if it is not known.
        """
        return self

    def num_rows(self, length: int) -> int | None:
        """Return how many samples of a length there are, or None where each is drawn anew.

        If it is a number, the keys 0, 1, 2, ... of the draws lead to different samples until all were used.
        """
        return None

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        """Levels of the coupled IDs; empty where no coupling is known."""
        return ()

    @property
    def coupling_by_rule(self) -> bool:
        """Whether the coupled IDs of the answer follow from the prompt, so that generation can use them."""
        return True

    @property
    def coupling_by_tokens(self) -> bool:
        """Whether the coupled IDs of a token follow from itself and from the token before: see `follow_coupling`."""
        return False

    def follow_coupling(self, token: Int[Tensor, "b"], before: Int[Tensor, "b g"]) -> Int[Tensor, "b g"]:
        """Coupled IDs of a token just written, from itself and the IDs of the one before."""
        raise self._missing("how its IDs follow from tokens")

    def check_length(self, length: int) -> None:
        """Refuse a length that the task does not have."""
        if length < 1:
            raise BadInput(f"{self.name}: length must be at least 1, got {length}")

    def max_tokens(self, length: int) -> int:
        """The most tokens a sample of this length can have."""
        raise self._missing("how many tokens a sample has")

    def max_answer(self, length: int) -> int:
        """The most tokens an answer at this length or a shorter one can have.  A close bound saves time in training."""
        return 1 if self.stop_token is None else self.max_tokens(length) - 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        """One sample per given length, on the lengths' device; `max_length` fixes the width."""
        raise self._missing("how to draw a sample")

    def solve(self, sample: Sample, row: int) -> list[int]:
        """The answer tokens of one row, found from its prompt alone and independently of `sample`."""
        raise self._missing("how to solve a prompt")

    def sparsity(self, length: int) -> int:
        """The most earlier tokens that an answer token depends on; a constant where the task is k-sparse."""
        raise self._missing("how many tokens an answer depends on")

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        """[row, i, j]: answer token i needs the earlier token j.  Quadratic in length: ask when needed."""
        raise self._missing("what its answers depend on")

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """The same answers, with everything that they do not depend on drawn again by the task's law."""
        raise self._missing("how to redraw what its answers do not depend on")

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        """Canonical coupled IDs, counted from 1 without gaps; 0 is reserved."""
        raise NotStated(f"{self.name} has no known coupling: use another ID policy")

    def hint_ids(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """Return the IDs that `index_hints` writes as tokens: the published coupling, unless signs get no hint."""
        return self.coupling(sample, "published")

    @property
    def name(self) -> str:
        return name_of(type(self))

    def parse(self, text: str) -> list[int]:
        """The tokens of a prompt typed by a person, separated by blanks."""
        numbers = {word: number for number, word in enumerate(self.vocabulary) if number != PAD}
        tokens = []
        for word in text.split():
            if word not in numbers:
                raise BadInput(f"{self.name}: {word!r} is not a token{nearest(word, numbers)}")
            tokens.append(numbers[word])
        if not tokens:
            raise BadInput(f"{self.name}: the prompt is empty")
        return tokens

    def prompt_batch(self, tokens: Sequence[int], budget: int) -> Sample:
        """A batch of one prompt with room for `budget` answer tokens."""
        row = torch.full((1, len(tokens) + budget), PAD)
        row[0, : len(tokens)] = torch.tensor(list(tokens))
        sizes = torch.tensor([len(tokens)])
        index = torch.arange(row.shape[1])
        answer = (index >= len(tokens))[None]
        length = torch.tensor([self.prompt_length(tokens)])
        return Sample(row, answer, torch.zeros_like(answer), length, sizes + budget, sizes)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        """The task's length, from the tokens of a prompt."""
        return len(tokens)

    def words(self, tokens: Sequence[int]) -> list[str]:
        return [self.vocabulary[token] for token in tokens]

    def spell(self, tokens: Sequence[int]) -> str:
        """Tokens as a person reads them, and `parse` reads them back."""
        return " ".join(self.words(tokens))

    def _missing(self, what: str) -> NotStated:
        return NotStated(f"{self.name} does not say {what}")


def build_sample(
    tokens: Int[Tensor, "b t"],
    length: Int[Tensor, "b"],
    prompt_tokens: Int[Tensor, "b"],
    num_tokens: Int[Tensor, "b"],
    hidden: Mapping[str, Tensor] | None = None,
) -> Sample:
    """A sample whose answer is everything after the prompt."""
    index = torch.arange(tokens.shape[1], device=tokens.device)
    inside = index < num_tokens[:, None]
    answer = inside & (index >= prompt_tokens[:, None])
    return Sample(
        tokens=tokens.masked_fill(~inside, PAD),
        answer=answer,
        given=torch.zeros_like(answer),
        length=length,
        num_tokens=num_tokens,
        prompt_tokens=prompt_tokens,
        hidden=hidden or {},
    )


Part = tuple[Tensor | int, Tensor | int]
"""Tokens [b, n] or one token, and how many of them each row takes [b]."""


def join(parts: Sequence[Part], width: int) -> Int[Tensor, "b {width}"]:
    """Set parts of different sizes side by side in each row."""
    batch, device = next((p.shape[0], p.device) for pair in parts for p in pair if isinstance(p, Tensor))
    index = torch.arange(width, device=device).expand(batch, width)
    row = torch.full((batch, width), PAD, device=device)
    start = torch.zeros(batch, 1, dtype=torch.long, device=device)
    for part, count in parts:
        size = count[:, None] if isinstance(count, Tensor) else count
        inside = (index >= start) & (index < start + size)
        if isinstance(part, Tensor):
            source = (index - start).clamp(0, part.shape[1] - 1)
            row = torch.where(inside, part.gather(1, source), row)
        else:
            row = row.masked_fill(inside, part)
        start = start + size
    return row


@dataclass(frozen=True, kw_only=True)
class Worksheet(Task):
    """Base of tasks whose answers are worked out token by token, each from a few tokens before it.

    A subclass gives `vocabulary`, `max_tokens`, `sample` and `work_out`; with `reads` it says what answer tokens
    depend on, and with `places` how IDs are coupled.
    """

    @property
    def ending(self) -> tuple[str, ...]:
        """Words that every prompt ends with; a person need not type them."""
        return ("=",)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        """The words of the answer, without the stop, found in plain Python; what is no prompt is refused."""
        raise self._missing("how to solve a prompt")

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        """The places of the tokens that each answer token is worked out from; -1 for none.

        What it says of the prompt's own tokens does not matter.
        """
        raise self._missing("what its answers depend on")

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """Canonical IDs: an answer token, the stop included, has the ID of what it is read from."""
        return super().coupling(sample, "published")

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = sample.tokens[row, : int(sample.prompt_tokens[row])].tolist()
        answer = [self._numbers[word] for word in self.work_out(self.words(prompt))]
        return answer if self.stop_token is None else [*answer, self.stop_token]

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        reads, (b, t) = self.reads(sample), sample.tokens.shape
        needs = torch.zeros(b, t, t + 1, dtype=torch.bool, device=reads.device)
        predicted = (sample.answer & ~sample.given)[:, :, None]  # what `reads` says of other tokens does not matter
        needs.scatter_(2, torch.where(predicted & (reads >= 0), reads, t), True)
        return needs[:, :, :t]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        return replace(sample)  # every token of the prompt matters, unless a task says otherwise

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        """Published: an answer token has the ID of what it is read from.  Aligned: the token before it has."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        ids = self.places(sample).masked_fill((index >= sample.num_tokens[:, None])[:, None], 0)
        if form == "published":
            stop = (index == sample.num_tokens[:, None] - 1) & (self.stop_token is not None)
            return ids.masked_fill(stop[:, None], 0)
        from_sign = index >= sample.prompt_tokens[:, None] - 1
        ids = torch.where(from_sign[:, None], pad(ids[:, :, 1:], (0, 1)), ids)
        lowest = ids.masked_fill(ids == 0, ids.shape[2] + 1).amin(2, keepdim=True)
        # the sign's own ID may now be nobody's: count from one again
        grows = [level.grows for level in self.coupling_levels]
        shifted = torch.where(ids > 0, ids - lowest + 1, 0)
        return torch.stack([shifted[:, g] if grown else ids[:, g] for g, grown in enumerate(grows)], dim=1)

    def parse(self, text: str) -> list[int]:
        """The tokens of a prompt, as words or, where a word is none, its characters; `ending` need not be typed."""
        words: list[str] = []
        for word in text.split():
            known = word in self._numbers or not all(character in self._numbers for character in word)
            words.extend([word] if known else word)
        there = next(n for n in range(len(self.ending), -1, -1) if words[len(words) - n :] == [*self.ending[:n]])
        tokens = super().parse(" ".join([*words, *self.ending[there:]]))
        self.work_out(self.words(tokens))  # refuses what is no prompt
        return tokens

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.vocabulary) if number != PAD}

    @staticmethod
    def step(sample: Sample) -> Int[Tensor, "b t"]:
        """The number of each answer token, from 0; negative in the prompt."""
        return torch.arange(sample.tokens.shape[1], device=sample.tokens.device) - sample.prompt_tokens[:, None]
