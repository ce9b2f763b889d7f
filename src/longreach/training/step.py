"""One optimizer step as a function of its number."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.model import Model
from longreach.objectives import Batch, Objective, Places, Prepared, resolve_objectives, run_forward, token_places
from longreach.training.config import TrainConfig
from longreach.training.optimizer import OptimizerConfig
from longreach.training.stream import BatchStream


class Ready(NamedTuple):
    """A batch with its precomputed targets and loss normalizers."""

    batch: Batch
    places: Places
    """The places of the answer tokens that must be predicted."""
    prepared: tuple[Prepared, ...]
    """The result of `Objective.prepare` for each objective."""
    counts: Int[Tensor, "terms models"]
    """The divisor of each term: that of the whole batch, so that the losses of its parts add up exactly."""
    progress: Float[Tensor, ""]
    """The share of training that is done."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "Ready":
        """Apply a function to every tensor."""
        rows = self.map_rows(change)
        return rows._replace(counts=change(self.counts), progress=change(self.progress))

    def map_rows(self, change: Callable[[Tensor], Tensor]) -> "Ready":
        """Apply a function to every tensor that has the rows of the batch in front."""
        prepared = tuple(tuple(change(tensor) for tensor in tensors) for tensors in self.prepared)
        return self._replace(batch=self.batch.map(change), places=self.places.map(change), prepared=prepared)

    def tensors(self) -> list[Tensor]:
        """Return all tensors in the order in which `map` visits them."""
        prepared = [tensor for tensors in self.prepared for tensor in tensors]
        return [*self.batch.tensors(), *self.places, *prepared, self.counts, self.progress]

    def rows(self, rows: slice | Tensor) -> "Ready":
        """Select rows of the batch; the counts stay those of the whole batch."""
        return self.map_rows(lambda tensor: tensor[rows])


def row_losses(
    model: Model, objectives: Sequence[Objective], ready: Ready, most: int | None
) -> Float[Tensor, "terms b"]:
    """Return the loss of each row under each objective."""
    forward = run_forward(objectives, model, ready.batch, ready.places, ready.progress, most, ready.prepared)
    return torch.stack([objective.losses(model, forward) for objective in objectives])


@runtime_checkable
class AnyStep(Protocol):
    """What the training loop calls.  `Step` trains one model; the engine has others, which may train several."""

    model: Model
    values: tuple[str, ...]
    reads_host: bool

    def __call__(self, number: int) -> Float[Tensor, "models values"]: ...

    def rates(self, number: int) -> list[float]: ...

    def finite(self) -> list[bool]: ...


class Step:
    """Draws the batch of a step, computes the gradient and updates the model."""

    models = 1
    reads_host = True
    """Whether a step may read values on the host, which waits for the device: shapes and clipping may depend on them,
    and the training loop reads the losses of every step."""

    def __init__(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        data: BatchStream,
        config: TrainConfig,
        accumulate: int = 1,
    ) -> None:
        """`accumulate` is the number of parts that a batch is computed in."""
        self.model, self.optimizer, self.data = model, optimizer, data
        self.config, self.accumulate, self.device = config, accumulate, data.device
        self.objectives = resolve_objectives(config.objectives, model)
        self.weights = torch.tensor([objective.weight for objective in self.objectives], device=self.device)
        self.values = (*(objective.metric for objective in self.objectives), "grad_norm")
        """What a step returns of each model: the mean of each term, and the gradient's norm before clipping."""

    def __call__(self, number: int) -> Float[Tensor, "models values"]:
        """Take the step, and return its `values`."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(number)
        return self.update(self.differentiate(self.prepare(number)))

    def prepare(self, number: int | Tensor) -> Ready:
        """Draw the batch of a step."""
        return self.complete(self.data.batch(number), number)

    def complete(self, batch: Batch, number: int | Tensor) -> Ready:
        """Return the batch of a step with its precomputed targets and loss normalizers."""
        if not isinstance(number, Tensor):
            number = torch.full((), number, device=self.device)
        return self.complete_steps(batch, number, ())

    def complete_steps(self, batch: Batch, numbers: Int[Tensor, "*steps"], steps: tuple[int, ...]) -> Ready:
        """Return batches with their precomputed targets and loss normalizers.

        `steps` is empty for the batch of one step, or has the number of steps whose batches lie one after the other.
        The counts and the progress have the same dimensions: [terms, *steps, models] and [*steps].
        """
        by_term = [self.sum_rows(objective.counts(batch).view(*steps, -1)) for objective in self.objectives]
        places = token_places(batch.sample, self.most)
        prepared = tuple(objective.prepare(self.model, batch, self.most) for objective in self.objectives)
        return Ready(batch, places, prepared, torch.stack(by_term).clamp(min=1), numbers / self.config.steps)

    def differentiate(self, ready: Ready) -> Float[Tensor, "terms models"]:
        """Compute the gradient, and return the mean of each term."""
        means = torch.zeros(ready.counts.shape, device=self.device)
        device_type = torch.device(self.device).type
        bf16 = self.config.precision == "bf16"
        self.optimizer.zero_grad(set_to_none=True)
        for rows in self.parts(len(ready.batch.ids)):
            with torch.autocast(device_type, torch.bfloat16) if bf16 else nullcontext():
                losses = self.losses(ready.rows(rows))
            mean = self.sum_rows(losses) / ready.counts
            (mean * self.weights[:, None]).sum().backward()  # type: ignore[no-untyped-call]
            means += mean.detach()
        return means

    def losses(self, ready: Ready) -> Float[Tensor, "terms b"]:
        """Return the loss of each row."""
        return row_losses(self.model, self.objectives, ready, self.most)

    def update(self, means: Float[Tensor, "terms models"]) -> Float[Tensor, "models values"]:
        """Update the weights, and return the `values` of the step."""
        return torch.cat([means, self.optimize()[None]]).T

    def optimize(self) -> Float[Tensor, "models"]:
        """Clip the gradient, step the optimizer, and return the gradient's norm before clipping."""
        norm = clip_gradients(self.model.parameters(), self.max_norm, look=self.reads_host)
        self.optimizer.step()
        return norm[None]

    @property
    def max_norm(self) -> float:
        """The largest gradient norm that is not clipped."""
        return self.config.optimizer.clip or math.inf

    @property
    def most(self) -> int | None:
        """The bound on answer tokens that fixes shapes, if they must not depend on values."""
        return None if self.reads_host else self.data.most_answer_tokens

    def parts(self, rows: int) -> Iterator[slice | Tensor]:
        """Yield the rows of each part of a batch."""
        size = rows // self.accumulate
        for start in range(0, rows, size):
            yield slice(start, start + size)

    def sum_rows(self, by_row: Tensor) -> Tensor:
        """Sum the last dimension over the rows of each model."""
        return by_row.sum(-1, keepdim=True)

    def learning_rate(self, number: int) -> float:
        return learning_rate(self.config.optimizer, number, self.config.steps)

    def rates(self, number: int) -> list[float]:
        """Return the learning rate of each model."""
        return [self.learning_rate(number)]

    def finite(self) -> list[bool]:
        """Return whether all weights of each model are finite."""
        return [bool(torch.stack([weight.isfinite().all() for weight in self.model.parameters()]).all())]


def clip_gradients(parameters: Iterable[nn.Parameter], most: float, look: bool = True) -> Float[Tensor, ""]:
    """Scale gradients down to a norm of at most `most`, and return the norm before.

    With `look` the norm is read on the host, and gradients within the limit are left alone instead of multiplied by 1.
    """
    parameters = list(parameters)
    norm: Tensor = nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
    if not look or not norm <= most:
        nn.utils.clip_grads_with_norm_(parameters, most, norm)
    return norm


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """Return the rate of step 0, 1, ..., steps-1.  The first step of a warm-up has a rate above zero."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, steps - config.warmup)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * done))
    return config.lr
