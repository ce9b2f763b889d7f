"""Batches of several steps drawn at once on a CPU.

A sampler is a chain of many operations on few numbers, which take a CPU as long to launch for one batch as for sixteen.
Every random number is a function of the seed and the number of its sample, so a batch has the same samples however many
are drawn with it.
"""

from dataclasses import replace

import torch
from torch import Tensor

from longreach.objectives import Batch
from longreach.training.stream import TrainingStream

_MOST_STEPS = 16
_TOKENS = 1 << 16
"""The tokens of all steps that are drawn at once.  More take a CPU longer than launching the operations does."""


def count_steps(data: TrainingStream) -> int:
    """Return the number of steps whose batches are best drawn at once."""
    return max(1, min(_MOST_STEPS, _TOKENS // (data.batch_size * data.width)))


class BlockStream:
    """A stream with the batches of another.  Blocks of `steps` batches are drawn at once."""

    def __init__(self, stream: TrainingStream, steps: int) -> None:
        self.stream, self.steps, self.device = stream, steps, stream.device
        self.blocks = replace(stream, batch_size=steps * stream.batch_size)
        """The stream whose step draws a block: a sample has the same number in both."""
        self._number: int | None = None
        """The number of the block that is held."""
        self._held: list[Batch] = []

    @property
    def most_answer_tokens(self) -> int:
        return self.stream.most_answer_tokens

    def batch(self, step: int | Tensor) -> Batch:
        """Return the batch of a step."""
        if isinstance(step, Tensor) or self.steps == 1:
            return self.stream.batch(step)
        number, place = divmod(step, self.steps)
        if number != self._number:
            first = self._number is None
            self._held, self._number = self._draw(number), number
            if first and not _equal(self._held[place], self.stream.batch(step)):
                self.steps = 1  # samples of the task depend on their batch
                return self.stream.batch(step)
        return self._held[place]

    def _draw(self, number: int) -> list[Batch]:
        """Return the batches of a block."""
        block, size = self.blocks.batch(number), self.stream.batch_size
        columns = zip(*(torch.split(tensor, size) for tensor in block.tensors()), strict=True)
        parts = [iter(column) for column in columns]
        return [block.map(lambda _, part=part: next(part)) for part in parts]  # type: ignore[misc]


def _equal(one: Batch, other: Batch) -> bool:
    """Return whether two batches have the same tensors."""
    return all(torch.equal(*pair) for pair in zip(one.tensors(), other.tensors(), strict=True))
