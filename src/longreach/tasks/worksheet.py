"""Tasks that say where each answer token is read from; what it depends on and how IDs are coupled follow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.seeding import Draws
from longreach.tasks.base import PAD, Form, Sample, Task


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
