"""A task without meaning: a prompt and an answer of any size, for timing."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config import Positive
from longreach.seeding import Draws, stream
from longreach.tasks import Sample, Task, build_sample


@dataclass(frozen=True, kw_only=True)
class Scribble(Task):
    """Random tokens.  `length` counts those of the answer.  It has no stop token: an untrained model would write one
    somewhere, and what is compared must write equally much.  Not registered, for there is nothing to find out."""

    prompt_tokens: Positive = 32
    """Tokens that are read before the first is written."""
    repeats: bool = False
    """Whether the answer is the prompt's last letter, again and again, which a model learns in a moment at any length.
    Otherwise it is random too, and no model can be right."""

    vocabulary = ("_", *"abcdefghijklmnopqrstuvwxyz")

    def max_tokens(self, length: int) -> int:
        return self.prompt_tokens + length

    def max_answer(self, length: int) -> int:
        return length

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        tokens = 1 + draws.below("token", len(self.vocabulary) - 1, self.max_tokens(max_length))
        if self.repeats:
            last = self.prompt_tokens - 1
            tokens = torch.cat([tokens[:, :last], tokens[:, last:][:, :1].expand_as(tokens[:, last:])], dim=1)
        prompt = torch.full_like(length, self.prompt_tokens)
        return build_sample(tokens, length, prompt_tokens=prompt, num_tokens=prompt + length)

    def solve(self, sample: Sample, row: int) -> list[int]:
        raise self._missing("what is right")

    def prompt_length(self, tokens: Sequence[int]) -> int:
        raise self._missing("how long an answer is")


def scribbled(task: Scribble, batch: int, length: int, device: str) -> Sample:
    """A batch of samples, the same every time."""
    numbers = torch.arange(batch, device=device)
    return task.sample(torch.full_like(numbers, length), stream(0, "bench", numbers), length)
