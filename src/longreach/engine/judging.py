"""Batch after batch of exact match, in the way that is quickest and decides as fp32 does."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.attention import Attention
from longreach.engine.parts import is_watched
from longreach.engine.recording import fixed, put, record
from longreach.engine.two_passes import JudgedBatch, Tried, judge_open_rows, try_in_half
from longreach.evaluation.exact_match import Asked, Judged, judge_in_one_pass
from longreach.model import RESERVED, Model
from longreach.tasks import Sample

_ROWS = 4
"""In a smaller batch, the row that is judged twice would cost as much as the first pass saves."""
_WORK = 1 << 37
"""Tokens times weights from which the first pass pays: with less, a pass waits for Python and not for arithmetic."""


class Judge:
    """Judges batches by a model that stays as it is: every answer token, and every ID where the model predicts them,
    given the true prefix.

    Half precision is tried where it may save time, unless the caller knows better.  A GPU is done with that sooner than
    Python has launched it.  So where batches of one shape follow each other, as within a length, the first is judged
    as it comes, the second is recorded as a CUDA graph, and from then on that is replayed.
    """

    def __init__(self, model: Model, graph: bool = True) -> None:
        attentions = [module for module in model.modules() if isinstance(module, Attention)]
        self.model, self.graph = model, graph
        self.weights = sum(parameter.numel() for parameter in model.parameters())
        self.fused = bool(attentions) and all(attention.fused for attention in attentions)
        self.kind: Any = None
        """Of the last batch."""
        self.recorded: _Recorded | None = None
        """For batches of this kind."""

    def __call__(
        self, sample: Sample, ids: Int[Tensor, "b g t"], reserved: int = RESERVED, try_half: bool = True
    ) -> Judged:
        self.model.check_ids(ids)
        if not (try_half and self.half_pays(sample)):
            with torch.autocast(ids.device.type, enabled=False):
                return judge_in_one_pass(self.model, sample, ids, reserved)
        # what no model sees is not copied
        batch = JudgedBatch(replace(sample, hidden={}), ids, Asked.of(self.model, sample))
        return judge_open_rows(self.model, batch, self._try(batch, reserved), reserved)

    def half_pays(self, sample: Sample) -> bool:
        """Whether a pass in half precision would be far quicker: on a GPU, for large batches.  Attention that is
        written out is in fp32 anyway, and a recurrent model waits for its steps."""
        much = len(sample.tokens) >= _ROWS and sample.tokens.numel() * self.weights >= _WORK
        return sample.tokens.is_cuda and self.fused and much

    def _try(self, batch: JudgedBatch, reserved: int) -> Tried:
        kind = (reserved, *(tensor.shape for tensor in batch.tensors()))
        if kind != self.kind:  # in the first of a kind, libraries choose kernels and allocate what they keep
            self.kind, self.recorded = kind, None
        elif self.recorded is None and self._may_record(batch):
            self.recorded = _Recorded(self.model, batch, reserved)
        return try_in_half(self.model, batch, reserved) if self.recorded is None else self.recorded(batch)

    def _may_record(self, batch: JudgedBatch) -> bool:
        """If no hooks would be passed over."""
        return self.graph and _has_memory(batch.ids.device) and not is_watched(*self.model.modules())


class _Recorded:
    """Both passes over one batch as a CUDA graph, for others like it."""

    def __init__(self, model: Model, batch: JudgedBatch, reserved: int) -> None:
        self.batch = batch.map(fixed)
        self.tried, self.replay = record(lambda places: try_in_half(model, places, reserved), self.batch)

    def __call__(self, batch: JudgedBatch) -> Tried:
        put(batch.tensors(), self.batch.tensors())
        self.replay()
        return self.tried.clone()  # the next batch overwrites it


def _has_memory(device: torch.device) -> bool:
    """Whether it is a GPU with as much memory left as everything has taken so far, a batch of this kind included: a
    graph keeps its own."""
    if device.type != "cuda":
        return False
    left, _ = torch.cuda.mem_get_info(device)
    return left >= torch.cuda.memory_reserved(device)


def judge(
    model: Model, sample: Sample, ids: Int[Tensor, "b g t"], reserved: int = RESERVED, try_half: bool = True
) -> Judged:
    """A single batch."""
    return Judge(model)(sample, ids, reserved, try_half)
