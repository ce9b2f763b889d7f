"""Training data: step s of a run is a function of the seed and s, so a resumed run needs no data state."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config import Settings
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.objectives import Batch
from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws, stream
from longreach.tasks import Task

LONGEST = 1 << 20
"""The largest training length.  The lengths that a task has are found by trying each."""


@dataclass(frozen=True, kw_only=True)
class PrimeConfig(Settings):
    """Train set priming (Jelassi et al., 2023): a few long samples among the short ones.  Tests are never primed."""

    lengths: Span
    """Lengths of the long samples; those the task does not have are left out."""
    share: float = 0.01
    """Probability that a training sample is a long one."""
    samples: int = 50
    """How many different long samples there are, shown again and again; 0: each is new."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"train.prime.share must be above 0 and at most 1, got {self.share}")
        if self.samples < 0:
            raise ValueError(f"train.prime.samples must not be negative, got {self.samples}")
        if self.lengths.high > LONGEST:
            raise ValueError(f"train.prime.lengths must be at most {LONGEST}, got {self.lengths}")


@runtime_checkable
class BatchStream(Protocol):
    """What a training step reads its batches from."""

    @property
    def device(self) -> str: ...

    @property
    def most_answer_tokens(self) -> int: ...

    def batch(self, step: int | Tensor) -> Batch: ...


@dataclass(frozen=True)
class TrainingStream:
    """Batches of mixed lengths.  Each length of the range that the task has is equally likely."""

    task: Task
    policy: IdPolicy
    lengths: tuple[int, ...]
    batch_size: int
    seed: int
    device: str
    prime: PrimeConfig | None = None

    @cached_property
    def longest(self) -> int:
        """The length that fixes the width of every batch."""
        return max(
            self.lengths if self.prime is None else (*self.lengths, *legal_lengths(self.task, self.prime.lengths))
        )

    @property
    def width(self) -> int:
        """The number of tokens in a row."""
        return self.task.max_tokens(self.longest)

    @property
    def most_answer_tokens(self) -> int:
        """The most answer tokens that a row can have."""
        return self.task.max_answer(self.longest)

    @cached_property
    def _lengths(self) -> Int[Tensor, "n"]:
        return torch.tensor(self.lengths, device=self.device)

    def batch(self, step: int | Tensor) -> Batch:
        """Return the batch of a step.  If `step` is a tensor on the device, nothing is read on the host."""
        draws = self.draws("train", self.sample_numbers(step))
        choice = draws.below("length", len(self.lengths), 1)[:, 0]
        length = self._lengths[choice]
        task_draws = draws.child("task")
        if self.prime is not None:
            long = draws.uniform("prime", 1)[:, 0] < self.prime.share
            length, task_draws = self._primed(self.prime, draws, long, length, task_draws)
        sample = self.task.sample(length, task_draws, self.longest)
        return Batch(sample, self.policy.training_ids(self.task, sample, draws.child("ids")), draws, self.task)

    def sample_numbers(self, step: int | Tensor) -> Int[Tensor, "b"]:
        """Return the numbers of the samples of a step; no two steps share a number."""
        return step * self.batch_size + torch.arange(self.batch_size, device=self.device)

    def draws(self, name: str, numbers: Int[Tensor, "b"]) -> Draws:
        """Return the random stream `name` of numbered samples."""
        return stream(self.seed, name, numbers)

    @cached_property
    def _long_lengths(self) -> Int[Tensor, "n"]:
        assert self.prime is not None
        return torch.tensor(legal_lengths(self.task, self.prime.lengths), device=self.device)

    def _primed(
        self, prime: PrimeConfig, draws: Draws, long: Bool[Tensor, "b"], length: Int[Tensor, "b"], task_draws: Draws
    ) -> tuple[Int[Tensor, "b"], Draws]:
        """Return lengths and randomness of a batch, some of whose samples are long ones."""
        known = draws if prime.samples == 0 else self.draws("prime", draws.below("known", prime.samples, 1)[:, 0])
        theirs = self._long_lengths[known.below("prime length", len(self._long_lengths), 1)[:, 0]]
        key = torch.where(long, known.child("prime").key, task_draws.key)
        return torch.where(long, theirs, length), Draws(key)


def legal_lengths(task: Task, span: Span) -> tuple[int, ...]:
    """Return the lengths of a range that the task has (sparse parity: the even ones)."""
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
