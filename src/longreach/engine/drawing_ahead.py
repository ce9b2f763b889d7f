"""Batches of several steps, drawn at once on a second stream while the steps before them compute.

A sampler is a chain of many kernels on few numbers, and each kernel takes as long to launch for one batch as for
sixteen.  Every random number is a function of the seed and the number of its sample, so that a batch has the same
samples however many are drawn with it.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from longreach.engine.recording import fixed, put, record
from longreach.engine.stacked_training import MultiSeedStream, StackedStream
from longreach.training import TrainingStream
from longreach.training.step import Ready, Step
from longreach.training.stream import BatchStream

_MOST_STEPS = 16
_TOKENS = 1 << 19
"""The tokens of all steps that are drawn at once.  More take the GPU longer than launching the kernels does."""


def several_steps(data: BatchStream, count: int) -> BatchStream | None:
    """Return a stream whose batch of a step holds the batches of `count` steps from there on; None if that is not
    known of a class."""
    if isinstance(data, StackedStream):
        return replace(data, parts=tuple(replace(part, steps=count) for part in data.parts))
    if isinstance(data, MultiSeedStream):
        return replace(data, steps=count)
    if type(data) is TrainingStream:
        return replace(MultiSeedStream.of(data, ()), steps=count)
    return None


def count_steps_ahead(data: BatchStream) -> int:
    """Return the number of steps whose batches are best drawn at once."""
    one = several_steps(data, 1)
    if not isinstance(one, MultiSeedStream | StackedStream):
        return 1
    first = one.parts[0] if isinstance(one, StackedStream) else one
    tokens = one.models * first.batch_size * first.width
    return max(1, min(_MOST_STEPS, _TOKENS // tokens))


class BatchesAhead:
    """Holds the batches of `count` steps, and draws those of the next steps meanwhile."""

    def __init__(self, step: Step, count: int) -> None:
        self.step = step
        self.first = torch.zeros((), dtype=torch.long, device=step.device)
        """The first step that is drawn next."""
        self.held_from: int | None = None
        """The first step whose batch is held."""
        self.drawn_from: int | None = None
        """The first step whose batch is drawn, or being drawn."""
        self._hold(count)
        if count > 1 and not self._draws_as_alone():
            self._hold(1)
        self._by_step = [self.batch_of_a_step(number).tensors() for number in range(self.count)]
        self.drawn, self._replay = self.record()

    def _hold(self, count: int) -> None:
        """Hold the batches of the first `count` steps."""
        self.count = count
        data = several_steps(self.step.data, count)
        if data is None:
            assert count == 1, f"{type(self.step.data).__name__} draws one step at a time"
            data = self.step.data
        self.data: BatchStream = data
        self.held = self._draw().map(fixed)

    def _draws_as_alone(self) -> bool:
        """Return whether the last step that is held has the batch that it has alone: samples of a task that is not
        vectorised correctly may depend on their batch."""
        last = self.count - 1
        alone = self.step.prepare(torch.full_like(self.first, last))
        return all(map(torch.equal, self.batch_of_a_step(last).tensors(), alone.tensors()))

    def fill(self, number: int, places: Ready) -> None:
        """Write the batch of a step into the places that a recorded step reads."""
        if self.held_from is None or not self.held_from <= number < self.held_from + self.count:
            if number != self.drawn_from:
                self.start_drawing(number)
            self.wait_for_drawing()
            put(self.drawn.tensors(), self.held.tensors())
            self.held_from = number
            self.start_drawing(number + self.count)
        put(self._by_step[number - self.held_from], places.tensors())

    def batch_of_a_step(self, number: int) -> Ready:
        """Return a view of the batch of one of the steps that are held."""

        def of_step(tensor: Tensor) -> Tensor:
            return tensor.view(self.count, len(tensor) // self.count, *tensor.shape[1:])[number]

        held = self.held
        return held.map_rows(of_step)._replace(counts=held.counts[:, number], progress=held.progress[number])

    def record(self) -> tuple[Ready, Callable[[], None]]:
        """Record the drawing, and return where batches will lie and the function that draws them."""
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        return record(lambda _: self._draw().map(lambda tensor: tensor.contiguous()), None)

    def start_drawing(self, number: int) -> None:
        """Draw the batches from a step on, as soon as the ones drawn before are copied."""
        self.drawn_from = number
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.first.fill_(number)
            self._replay()

    def wait_for_drawing(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)

    def _draw(self) -> Ready:
        """Return the batches of all steps in one: rows are ordered by step."""
        numbers = self.first + torch.arange(self.count, device=self.step.device)
        return self.step.complete_steps(self.data.batch(self.first), numbers, (self.count,))
