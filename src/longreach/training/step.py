"""One optimizer step as a function of its number; on a GPU recorded once and replayed."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.engine.kernels import HAS_TRITON
from longreach.engine.ranks import ALONE, Ranks
from longreach.engine.recording import fixed, put
from longreach.engine.second_stream import SecondStream, Watch, beside_backward
from longreach.engine.stacked_stream import StackedStream
from longreach.model import Model
from longreach.objective import ObjectiveConfig, Places, id_targets, token_places, token_targets
from longreach.seeding import Draws
from longreach.training.loss import WholeLoss
from longreach.training.optimizer import OptimizerConfig, clip_each, learning_rate, take_shares
from longreach.training.stream import Batch, TrainingStream

if TYPE_CHECKING:
    from longreach.engine.update import Update

_WARM_UP = 3
"""Steps before recording, in which libraries choose kernels and allocate what they keep."""


class _Ready(NamedTuple):
    """A batch, and what of its losses follows from it alone."""

    batch: Batch
    places: Places
    counts: Int[Tensor, "3 models"]
    """By what each of the losses is divided: that of the whole batch of each model, so that its parts add up to it
    exactly."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "_Ready":
        """Apply a function to every tensor."""
        return _Ready(self.batch.map(change), self.places.map(change), change(self.counts))

    def tensors(self) -> list[Tensor]:
        return [*self.batch.tensors(), *self.places, self.counts]


class Stepper:
    """Calling it with the number of a step makes the batch, the gradients and the update.

    A small model is done with a kernel before Python has launched the next.  So on a GPU the whole step, sampling
    included, is recorded as a CUDA graph and replayed: what changes from step to step, its number and the learning
    rate, lies in two tensors.  While a step computes, the batch of the next is made beside it: the many small kernels
    of sampling fill what the large ones leave idle.  The computation is the same as without, but for rounding.
    """

    def __init__(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        data: TrainingStream | StackedStream,
        optimizer_config: OptimizerConfig,
        objective: ObjectiveConfig,
        steps: int,
        accumulate: int,
        bf16: bool,
        record: bool,
        shares: Sequence[float] | None = None,
        ranks: Ranks = ALONE,
        loss: nn.Module | None = None,
    ) -> None:
        """`shares` are the learning rates of the models of a stack as shares of the given one, where they differ.
        Several `ranks` give the `loss` that they have in common."""
        self.model, self.optimizer, self.data = model, optimizer, data
        self.ranks, self.loss = ranks, WholeLoss(model) if loss is None else loss
        self.optimizer_config, self.objective = optimizer_config, objective
        self.steps, self.accumulate, self.bf16 = steps, accumulate, bf16
        self.device_type = torch.device(data.device).type
        self.graph: torch.cuda.CUDAGraph | None = None
        self.update: Update | None = None
        """Takes the place of the optimizer in a recorded step."""
        self.way: Watch | SecondStream | None = None
        """How a recorded step makes gradients of weights."""
        self.prepared: int | None = None
        """The step whose batch lies ready."""
        self.weights = torch.tensor([1.0, objective.id_weight, objective.dependency_weight], device=data.device)
        self.number = torch.zeros((), dtype=torch.long, device=data.device)
        self.models = len(data.seeds)
        self.shares = None if shares is None else torch.tensor(shares, dtype=torch.float64, device=data.device)
        self.result = torch.zeros(self.models, 4, device=data.device)
        if record and self.device_type == "cuda":
            self.rate = torch.zeros((), device=data.device)
            for group in optimizer.param_groups:
                group["lr"], group["capturable"] = self.rate, True
            self._record()

    def __call__(self, step: int) -> Tensor:
        """For each model: loss per token, per predicted ID and of the dependency head, and the gradient's norm before
        clipping."""
        rate = learning_rate(self.optimizer_config, step, self.steps)
        self.number.fill_(step)
        if self.graph is not None:
            if step != self.prepared:
                self._prepare(self._ready(self.number))
            self.prepared = step + 1
            self.rate.fill_(rate)
            self.graph.replay()
            return self.result.clone()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return self._follow(self._differentiate(self._ready(self.number)))

    def _ready(self, number: Tensor) -> _Ready:
        """The batch of a step."""
        batch = self.data.batch(number)
        tokens = self._sums(token_targets(batch.sample).sum(1))
        positions = torch.ones_like(tokens)
        if self.model.position_head is not None:
            positions = self._sums(id_targets(batch.sample, self.objective.id_loss_on).sum(1)).clamp(min=1)
        places = token_places(batch.sample, self.data.most_answer_tokens)
        return _Ready(batch, places, torch.stack([tokens, positions, tokens]))

    def _differentiate(self, ready: _Ready) -> Float[Tensor, "3 models"]:
        """Makes gradients; the losses."""
        batch, places, counts = ready
        if self.ranks.count > 1:
            own = lambda tensor: tensor[self.ranks.rows(len(tensor))]  # noqa: E731
            batch, places = batch.map(own), places.map(own)
        sample, ids = batch.sample, batch.ids
        depends_on = None if self.model.dependency_head is None else self.data.depends_on(sample)
        most = self.data.most_answer_tokens
        # ranks take the mean of their gradients, and what is wanted is the sum
        weights = self.weights[:, None] * self.ranks.count
        means = torch.zeros(3, self.models, device=ids.device)
        self.optimizer.zero_grad(set_to_none=True)
        bf16 = torch.autocast(self.device_type, torch.bfloat16) if self.bf16 else nullcontext()
        for rows in self._parts(len(ids)):

            def of_part(tensor: Tensor, rows: slice | Tensor = rows) -> Tensor:
                return tensor[rows]

            with bf16:
                losses = self.loss(
                    sample.map(of_part),
                    ids[rows],
                    self.objective,
                    Draws(batch.draws.key[rows]),
                    progress=self.number / self.steps,
                    most=most,
                    depends_on=None if depends_on is None else depends_on[rows],
                    places=places.map(of_part),
                )
            mean = torch.stack(losses).view(3, self.models, -1).sum(2) / counts
            with nullcontext() if self.way is None else beside_backward(self.way):
                (mean * weights).sum().backward()  # type: ignore[no-untyped-call]
            means += mean.detach()
        return means

    def _follow(self, means: Float[Tensor, "3 models"]) -> Float[Tensor, "models 4"]:
        """Takes the step that gradients point to; the losses and norms."""
        norms = self.update() if self.update is not None else self._follow_by_torch()
        return torch.cat([self.ranks.add(means), norms[None]]).T

    def _follow_by_torch(self) -> Float[Tensor, "models"]:
        parameters = list(self.model.parameters())
        norms = clip_each(parameters, self.optimizer_config.clip or math.inf, self.models)
        before = None if self.shares is None else [parameter.detach().clone() for parameter in parameters]
        self.optimizer.step()
        if self.shares is not None and before is not None:
            take_shares(parameters, before, self.shares)
        return norms

    def _sums(self, by_row: Tensor) -> Tensor:
        """Over the rows of each model."""
        return by_row.view(self.models, -1).sum(1)

    def _parts(self, rows: int) -> Iterator[slice | Tensor]:
        """The rows of a batch, as many of each model in every part."""
        if self.accumulate == 1:
            yield slice(None)
            return
        for part in torch.arange(rows, device=self.number.device).view(self.models, self.accumulate, -1).unbind(1):
            yield part.flatten()

    def _record(self) -> None:
        """Run a few steps, take them back, and record one (recording computes nothing)."""
        state = self.optimizer.state
        fresh = not state
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        moments = [tensor.clone() for values in state.values() for tensor in values.values()]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self.way = watch = Watch()
                self._follow(self._differentiate(self._ready(self.number)))
            self.update = self._find_update()
            if self.update is not None:
                self.update()
            self.way = SecondStream() if watch.finds_nobody_waiting(self.model.parameters()) else None
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(value)
            kept = [tensor for values in state.values() for tensor in values.values()]
            for index, tensor in enumerate(kept):
                tensor.zero_() if fresh else tensor.copy_(moments[index])
        self.optimizer.zero_grad(set_to_none=True)
        self.ready = self._ready(self.number).map(fixed)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            main = torch.cuda.current_stream()
            number = self.number + 1
            begun = main.record_event()
            means = self._differentiate(self.ready)  # first: what is recorded first is launched first
            side.wait_event(begun)
            with torch.cuda.stream(side):
                following = self._ready(number).map(lambda tensor: tensor.contiguous())
                side.wait_stream(main)  # nobody reads the batch any more
                self._prepare(following)
            self.result = self._follow(means)
            main.wait_stream(side)
        if self.update is not None:
            self.update.find_gradients()

    def _find_update(self) -> "Update | None":
        if not HAS_TRITON:
            return None
        from longreach.engine.update import Update, fits

        shares = torch.ones(self.models, device=self.number.device) if self.shares is None else self.shares
        most = self.optimizer_config.clip or math.inf
        return Update(self.optimizer, most, self.rate, shares) if fits(self.optimizer) else None

    def _prepare(self, ready: _Ready) -> None:
        """Put a batch where the recorded step looks for it."""
        put(ready.tensors(), self.ready.tensors())
