"""Training data: step s of a run is a function of the seed and s, so a resumed run needs no data state."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws, stream
from longreach.spans import Span
from longreach.tasks import Sample, Task


@dataclass(frozen=True)
class Batch:
    sample: Sample
    ids: Int[Tensor, "b g t"]
    draws: Draws
    """For whatever else training draws."""


@dataclass(frozen=True)
class TrainingStream:
    """Batches of mixed lengths, each length of the range that the task has being equally likely."""

    task: Task
    policy: IdPolicy
    lengths: tuple[int, ...]
    batch_size: int
    seed: int
    device: str

    @cached_property
    def _lengths(self) -> Int[Tensor, "n"]:
        return torch.tensor(self.lengths, device=self.device)

    def batch(self, step: int | Tensor) -> Batch:
        """`step` may lie on the device: then nothing here needs the host."""
        draws = stream(self.seed, "train", step * self.batch_size + torch.arange(self.batch_size, device=self.device))
        choice = draws.below("length", len(self.lengths), 1)[:, 0]
        length = self._lengths[choice]
        sample = self.task.sample(length, draws.child("task"), max(self.lengths))
        return Batch(sample, self.policy.training_ids(self.task, sample, draws.child("ids")), draws)


def legal_lengths(task: Task, span: Span) -> tuple[int, ...]:
    """The lengths of a range that the task has (sparse parity: the even ones)."""
    legal, refusal = [], None
    for length in range(span.low, span.high + 1):
        try:
            task.check_length(length)
        except BadInput as error:
            refusal = error
        else:
            legal.append(length)
    if refusal is not None and not legal:
        raise BadInput(f"no length in {span} is possible: {refusal}")
    return tuple(legal)
