"""Training of stacked models: their data, their step, and the state of their optimizer.

A batch holds the rows of each model, one model after the other.  Losses are summed, and gradients clipped, per model.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.errors import BadInput
from longreach.model import Model
from longreach.objectives import Batch
from longreach.seeding import Draws, stream
from longreach.tasks import Task
from longreach.training import Step, TrainConfig, TrainingStream
from longreach.training.stream import BatchStream


@dataclass(frozen=True)
class MultiSeedStream(TrainingStream):
    """The batches of several seeds, drawn at once."""

    more_seeds: tuple[int, ...] = ()
    """The seeds of the models after the first."""
    steps: int = 1
    """The number of consecutive steps that a batch holds, one step after the other."""

    @classmethod
    def of(cls, first: TrainingStream, more_seeds: Iterable[int]) -> "MultiSeedStream":
        """Extend the stream of one model to several seeds."""
        return cls(**{one.name: getattr(first, one.name) for one in fields(first)}, more_seeds=tuple(more_seeds))

    @property
    def models(self) -> int:
        return 1 + len(self.more_seeds)

    def sample_numbers(self, step: int | Tensor) -> Int[Tensor, "b"]:
        later = torch.arange(self.steps, device=self.device)[:, None] * self.batch_size
        return (super().sample_numbers(step) + later).repeat(1, self.models).flatten()

    def draws(self, name: str, numbers: Int[Tensor, "b"]) -> Draws:
        return stream(self._seeds, name, numbers)

    @cached_property
    def _seeds(self) -> Int[Tensor, "b"]:
        """The seed of every row."""
        seeds = torch.tensor((self.seed, *self.more_seeds), device=self.device)
        return seeds.repeat_interleave(self.batch_size).repeat(self.steps)


@dataclass(frozen=True)
class StackedBatch(Batch):
    """A batch of models whose tasks differ in settings."""

    tasks: tuple[tuple[Task, int], ...]
    """Each task, and how many models train on it."""

    def depends_on(self) -> Bool[Tensor, "b t t"]:
        rows = len(self.ids) // sum(models for _, models in self.tasks)
        found, start = [], 0
        for task, models in self.tasks:
            stop = start + rows * models
            found.append(task.depends_on(self.sample.rows(start, stop)))
            start = stop
        return torch.cat(found)


@dataclass(frozen=True)
class StackedStream:
    """The batches of several streams of one task, whose settings may differ; rows must be equally wide."""

    parts: tuple[MultiSeedStream, ...]

    def __post_init__(self) -> None:
        first = self.parts[0]
        for part in self.parts[1:]:
            if type(part.task) is not type(first.task) or part.width != first.width:
                raise BadInput(
                    f"{first.task.name} with {first.width} tokens and {part.task.name} with {part.width}"
                    " cannot be trained as one"
                )
            if part.batch_size != first.batch_size:
                raise BadInput(f"batches of {first.batch_size} and {part.batch_size} cannot be trained as one")

    @property
    def models(self) -> int:
        return sum(part.models for part in self.parts)

    @property
    def device(self) -> str:
        return self.parts[0].device

    @property
    def most_answer_tokens(self) -> int:
        return max(part.most_answer_tokens for part in self.parts)

    def batch(self, step: int | Tensor) -> StackedBatch:
        batches = [part.batch(step) for part in self.parts]
        steps = self.parts[0].steps

        def by_step(tensor: Tensor) -> Tensor:
            return tensor.view(steps, len(tensor) // steps, *tensor.shape[1:])

        columns = zip(*(map(by_step, batch.tensors()) for batch in batches), strict=True)
        joined = iter([torch.cat(column, dim=1).flatten(0, 1) for column in columns])
        whole = batches[0].map(lambda _: next(joined))
        tasks = tuple((part.task, part.models) for part in self.parts)
        return StackedBatch(whole.sample, whole.ids, whole.draws, whole.task, tasks)


@runtime_checkable
class StackStream(BatchStream, Protocol):
    """The batches of several models, one model after the other."""

    @property
    def models(self) -> int: ...


class StackedStep(Step):
    """One step of each of the stacked models."""

    def __init__(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        data: StackStream,
        config: TrainConfig,
        accumulate: int = 1,
        shares: Sequence[float] | None = None,
    ) -> None:
        """`shares` are the learning rates of the models as shares of the configured one, where they differ."""
        super().__init__(model, optimizer, data, config, accumulate)
        self.models = data.models
        self.shares = None if shares is None else torch.tensor(shares, dtype=torch.float64, device=data.device)

    def optimize(self) -> Float[Tensor, "models"]:
        parameters = list(self.model.parameters())
        norms = clip_each(parameters, self.max_norm, self.models)
        before = None if self.shares is None else [parameter.detach().clone() for parameter in parameters]
        self.optimizer.step()
        if self.shares is not None and before is not None:
            take_shares(parameters, before, self.shares)
        return norms

    def parts(self, rows: int) -> Iterator[slice | Tensor]:
        """Yield the rows of each part of a batch: as many of each model in every part."""
        if self.accumulate == 1:
            yield slice(None)
            return
        for part in torch.arange(rows, device=self.device).view(self.models, self.accumulate, -1).unbind(1):
            yield part.flatten()

    def sum_rows(self, by_row: Tensor) -> Tensor:
        return by_row.view(*by_row.shape[:-1], self.models, -1).sum(-1)

    def rates(self, number: int) -> list[float]:
        shares = [1.0] * self.models if self.shares is None else self.shares.tolist()
        return [self.learning_rate(number) * share for share in shares]

    def finite(self) -> list[bool]:
        by_weight = [weight.isfinite().reshape(self.models, -1).all(1) for weight in self.model.parameters()]
        found: list[bool] = torch.stack(by_weight).all(0).tolist()
        return found


def clip_each(parameters: list[nn.Parameter], most: float, models: int) -> Float[Tensor, "{models}"]:
    """Scale the gradients of each model down to a norm of at most `most`, and return the norms before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    # concatenated first: a norm of its own for each of many small weights takes a GPU far longer
    norms: Tensor = torch.cat([gradient.reshape(models, -1) for gradient in gradients], dim=1).norm(dim=1)
    scale = (most / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))
    return norms


def take_shares(parameters: list[nn.Parameter], before: list[Tensor], shares: Float[Tensor, "models"]) -> None:
    """Reduce the update of each model to its share.

    The update of AdamW is proportional to the learning rate, so that a share of the update is that of a share of the
    rate.
    """
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=True):
            share = shares.to(parameter.dtype).view(-1, *[1] * (parameter.dim() - 1))
            parameter.copy_(old.lerp(parameter, share))


def stack_state(optimizer: torch.optim.Optimizer, members: Sequence[torch.optim.Optimizer]) -> None:
    """Set the state of a stack's optimizer to the states of its members' optimizers."""
    states = [member.state_dict()["state"] for member in members]
    stacked = {
        index: {
            # all members have done as many steps
            name: value if name == "step" else torch.stack([state[index][name] for state in states])
            for name, value in values.items()
        }
        for index, values in states[0].items()
    }
    optimizer.load_state_dict({"state": stacked, "param_groups": optimizer.state_dict()["param_groups"]})


def take_member(optimizer: torch.optim.Optimizer, number: int, member: torch.optim.Optimizer) -> None:
    """Set the state of a member's optimizer to its part of the stack's state."""
    own = {
        index: {name: value if name == "step" else value[number] for name, value in values.items()}
        for index, values in optimizer.state_dict()["state"].items()
    }
    member.load_state_dict({"state": own, "param_groups": member.state_dict()["param_groups"]})
