"""Exact match of batch after batch, in the way that is quickest and decides as fp32 does."""

from collections.abc import Hashable
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.engine.recording import fixed, put, record
from longreach.engine.two_passes import JudgedBatch, Models, Tried, judge_open_rows, try_in_half
from longreach.evaluation import Judged, judge
from longreach.evaluation.exact_match import Asked
from longreach.model import RESERVED, Model
from longreach.tasks import Sample

_ROWS = 4
"""In a smaller batch, the row that is judged twice would cost as much as the first pass saves."""
_WORK = 1 << 37
"""Tokens times weights from which the first pass pays: with less, a pass waits for Python and not for arithmetic."""
WORTH_RECORDING = 4
"""Batches of one shape from which recording the pass over one pays."""


class FastJudge:
    """Judges batches by a model that stays as it is: every answer token, and every ID where the model predicts them,
    given the true prefix.

    Large batches are judged in half precision first.  If that settles nothing of the first batch, as with a model that
    fails, it is not tried again.  Where batches of one shape follow each other, as within a length, the first is judged
    directly, the second is recorded as a CUDA graph, and the others replay that.
    """

    def __init__(self, exact: Model, half: Model | None = None, record: bool = False) -> None:
        """`exact` and `half` share their weights; without `half` all is judged in fp32."""
        self.exact, self.models = exact, None if half is None else Models(half, exact)
        self.record = record
        self.weights = sum(parameter.numel() for parameter in exact.parameters())
        self.shapes: Hashable = None
        """The shapes of the last batch."""
        self.recorded: _Recorded | None = None
        """For batches of these shapes."""
        self.settled: Tensor | None = None
        """The rows of the last batch that half precision has settled."""

    def __call__(self, sample: Sample, ids: Int[Tensor, "b g t"], reserved: int = RESERVED) -> Judged:
        if self.models is None or not self.is_large(sample):
            return judge(self.exact, sample, ids, reserved)
        self.exact.check_ids(ids)
        # hidden parts of a sample are not copied: no model sees them
        batch = JudgedBatch(replace(sample, hidden={}), ids, Asked.of(self.exact, sample))
        first = self.shapes is None
        tried = self._try(self.models, batch, reserved)
        self.settled = tried.settled
        if first and not bool(tried.settled.any()):
            self.models = None
        return judge_open_rows(self.exact, batch, tried, reserved)

    def is_large(self, sample: Sample) -> bool:
        """Return whether a pass in half precision would be far quicker."""
        return len(sample.tokens) >= _ROWS and sample.tokens.numel() * self.weights >= _WORK

    def _try(self, models: Models, batch: JudgedBatch, reserved: int) -> Tried:
        shapes = (reserved, *(tensor.shape for tensor in batch.tensors()))
        if shapes != self.shapes:  # in the first of a shape, libraries choose kernels and allocate what they keep
            self.shapes, self.recorded = shapes, None
        elif self.recorded is None and self.record and has_memory(batch.ids.device):
            self.recorded = _Recorded(models, batch, reserved)
        return try_in_half(models, batch, reserved) if self.recorded is None else self.recorded(batch)


class _Recorded:
    """Both passes over one batch as a CUDA graph, for others like it."""

    def __init__(self, models: Models, batch: JudgedBatch, reserved: int) -> None:
        self.batch = batch.map(fixed)
        self.tried, self.replay = record(lambda places: try_in_half(models, places, reserved), self.batch)

    def __call__(self, batch: JudgedBatch) -> Tried:
        put(batch.tensors(), self.batch.tensors())
        self.replay()
        return self.tried.clone()  # the next batch overwrites it


def has_memory(device: torch.device) -> bool:
    """Return whether a GPU has as much memory left as everything has taken so far: a graph keeps its own."""
    left, _ = torch.cuda.mem_get_info(device)
    return left >= torch.cuda.memory_reserved(device)
