"""IDs that count the digits of each number."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.ids.base import IdPolicy
from longreach.seeding import Draws
from longreach.tasks import Sample, Task


@register("ids", "abacus")
@dataclass(frozen=True, kw_only=True)
class Abacus(IdPolicy):
    """Each run of digits counts 1, 2, 3, ...; every other token has ID 0.  Training adds a random number to the counts.

    Numbers should begin with the least significant digit, so that equal weights get equal IDs: tasks on numbers have
    `operand_order: reversed` for that.  An ID follows from the tokens before it: generation goes by what the model
    itself has written.  A digit is a word that begins with one.  The authors draw one number of 0 to 99 for a whole
    batch; here each sample draws its own, as large as `max_id` allows.
    """

    paper = "McLeish et al., NeurIPS 2024"

    def __post_init__(self) -> None:
        if self.max_id < 1:
            raise ValueError(f"abacus.max_id must be at least 1, got {self.max_id}")

    def check(self, task: Task, longest: Sample) -> None:
        if not _digits(task):
            raise BadInput(f"abacus counts digits, and {task.name} has none")
        run = int(self.assign(task, longest).max())
        if run > self.max_id:
            raise BadInput(f"abacus.max_id={self.max_id} is too small: numbers have {run} digits")

    def assign(self, task: Task, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        digit = _is_digit(task, sample.tokens)
        last_other = index.masked_fill(digit, -1).cummax(1).values
        return torch.where(digit, index - last_other, 0)[:, None]

    def relabel(self, task: Task, sample: Sample, ids: Int[Tensor, "b g t"], draws: Draws) -> Int[Tensor, "b g t"]:
        room = (self.max_id - ids.amax((1, 2))).clamp(min=0)[:, None]
        return torch.where(ids > 0, ids + draws.below("start", room + 1, 1)[:, None], 0)

    def supplier(self, task: Task) -> str:
        return "tokens"

    def follow(self, task: Task, token: Int[Tensor, "b"], before: Int[Tensor, "b g"]) -> Int[Tensor, "b g"]:
        return torch.where(_is_digit(task, token)[:, None], before + 1, 0)


def _digits(task: Task) -> list[int]:
    return [number for number, word in enumerate(task.vocabulary) if word[0].isdigit()]


def _is_digit(task: Task, tokens: Int[Tensor, "*n"]) -> Bool[Tensor, "*n"]:
    found = torch.zeros_like(tokens, dtype=torch.bool)
    for number in _digits(task):  # a table would have to come from the host at every step
        found |= tokens == number
    return found
