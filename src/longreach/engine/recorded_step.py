"""A training step recorded as a CUDA graph and replayed.

A GPU finishes the kernels of a small model before Python has launched the next.  So the whole step is recorded.  The
number of the step and the learning rate change from step to step and lie in two tensors.  Batches are drawn by a graph
of their own: see `drawing_ahead.py`.  Results differ from those of the step itself by rounding only.

A task in plain Python draws its batches on the CPU, which no graph can do.  The recorded step then begins with a batch
that lies in fixed places, and before each replay the next batch is copied there.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.engine.drawing_ahead import BatchesAhead
from longreach.engine.recording import fixed, put
from longreach.engine.second_stream import SecondStream, Watch, beside_backward
from longreach.engine.stacked_training import StackedStep
from longreach.training.step import Ready, Step

if TYPE_CHECKING:
    from longreach.engine.update import Update

_WARM_UP = 3
"""Steps before recording, in which libraries choose kernels and allocate memory that they keep."""


class RecordedStep:
    """Records a step when it is made, and replays it when it is called."""

    reads_host = False

    def __init__(self, step: Step, kernels: bool = True, second_stream: bool = True, ahead: int = 1) -> None:
        """`kernels` take the place of clipping and AdamW; the second stream computes gradients of weights; the batches
        of so many steps are drawn at once."""
        self.kernels, self.second_stream, self.steps_ahead = kernels, second_stream, ahead
        self.step, self.model, self.values = step, step.model, step.values
        step.reads_host = False  # a graph has fixed shapes and never waits for the host
        self.update: Update | None = None
        """Kernels that replace clipping and the optimizer."""
        self.way: Watch | SecondStream | None = None
        """How gradients of weights are computed."""
        self.number = torch.zeros((), dtype=torch.long, device=step.device)
        self.rate = torch.zeros((), device=step.device)
        self.result = torch.zeros(step.models, len(step.values), device=step.device)
        for group in step.optimizer.param_groups:
            group["lr"], group["capturable"] = self.rate, True
        self.make_places()
        self.replay = self.record()

    def __call__(self, number: int) -> Float[Tensor, "models values"]:
        """Take the step, and return its `values`."""
        self.number.fill_(number)
        self.fill_places(number)
        self.rate.fill_(self.step.learning_rate(number))
        self.replay()
        return self.result.clone()

    def rates(self, number: int) -> list[float]:
        """Return the learning rate of each model."""
        return self.step.rates(number)

    def finite(self) -> list[bool]:
        """Return whether all weights of each model are finite."""
        return self.step.finite()

    def make_places(self) -> None:
        """Make the places that the recorded step reads its batch from."""
        self.ahead = BatchesAhead(self.step, self.steps_ahead)
        self.ready = self.ahead.batch_of_a_step(0).map(fixed)

    def fill_places(self, number: int) -> None:
        """Write the batch of a step into these places."""
        self.ahead.fill(number, self.ready)

    def prepare(self) -> Ready:
        """Return the batch that the recorded step reads."""
        return self.ready

    def record(self) -> Callable[[], None]:
        """Run a few steps, undo them, record one, and return the function that replays it."""
        step, state = self.step, self.step.optimizer.state
        fresh = not state
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        moments = [tensor.clone() for values in state.values() for tensor in values.values()]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self.way = watch = Watch()
                step.update(self._differentiate(self.prepare()))
            self.update = self._find_update()
            if self.update is not None:
                self.update()
            alone = self.second_stream and watch.finds_nobody_waiting(self.model.parameters())
            self.way = SecondStream() if alone else None
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(value)
            kept = [tensor for values in state.values() for tensor in values.values()]
            for index, tensor in enumerate(kept):
                tensor.zero_() if fresh else tensor.copy_(moments[index])
        step.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.result = self._update(self._differentiate(self.prepare()))
        if self.update is not None:
            self.update.find_gradients()
        return graph.replay

    def _differentiate(self, ready: Ready) -> Float[Tensor, "terms models"]:
        if self.way is None:
            return self.step.differentiate(ready)
        with beside_backward(self.way):
            return self.step.differentiate(ready)

    def _update(self, means: Float[Tensor, "terms models"]) -> Float[Tensor, "models values"]:
        return self.step.update(means) if self.update is None else torch.cat([means, self.update()[None]]).T

    def _find_update(self) -> "Update | None":
        if not self.kernels:
            return None
        from longreach.engine.update import Update, fits

        step = self.step
        shares = step.shares if isinstance(step, StackedStep) else None
        if shares is None:
            shares = torch.ones(step.models, device=step.device)
        return Update(step.optimizer, step.max_norm, self.rate, shares) if fits(step.optimizer) else None


class HostRecordedStep(RecordedStep):
    """A recorded step whose batches are drawn on the CPU: see `HostStream`."""

    def make_places(self) -> None:
        self.batch = self.step.data.batch(0).map(fixed)  # any batch: all have the same shapes

    def fill_places(self, number: int) -> None:
        # copies of one stream happen in turn, so the last replay has read its batch by then
        put(self.step.data.batch(number).tensors(), self.batch.tensors())

    def prepare(self) -> Ready:
        return self.step.complete(self.batch, self.number)
