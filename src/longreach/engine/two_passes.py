"""Exact match at the speed of tensor cores, decided as fp32 decides.

Products in fp32 have no tensor cores, those in half precision have; but where two logits are close, rounding would
decide.  So on a GPU a first pass in half precision settles only what it leaves no doubt about: answers that are right
throughout, every decision by a clear margin.  All others are judged again in fp32.  That includes those that are
clearly wrong: rounding breaks an answer more easily than it mends one, and an error must be the model's own.

Of the answers that would be settled, those with the closest decisions are judged again in any case.  If fp32 does not
bear out the first pass there, none of its answers is believed.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.evaluation.exact_match import Asked, Judged, judge_in_one_pass
from longreach.model import RESERVED, Model
from longreach.tasks import Sample

CLEAR = 1.0
"""The distance of the two largest logits from which half precision may settle a decision.  Rounding moves it by
hundredths."""
_MOVED = CLEAR / 4
"""What the closest decision of an answer may move at most between the passes."""
_CHECKED = 16
"""Of so many rows one is judged in both, whatever the first pass says."""


class JudgedBatch(NamedTuple):
    """What is judged together."""

    sample: Sample
    ids: Int[Tensor, "b g t"]
    asked: Asked

    def map(self, change: Callable[[Tensor], Tensor]) -> "JudgedBatch":
        """Apply a function to every tensor."""
        return JudgedBatch(self.sample.map(change), change(self.ids), self.asked.map(change))

    def tensors(self) -> list[Tensor]:
        return [*self.sample.tensors(), self.ids, self.asked.tokens, self.asked.ids]


class Tried(NamedTuple):
    """The results of both passes, where the second has seen a few rows only."""

    judged: Judged
    settled: Bool[Tensor, "b"]
    """Rows that half precision has settled.  Their margins, too, are those of half precision."""
    open: Bool[Tensor, "b"]
    """Rows that fp32 must judge yet."""

    def clone(self) -> "Tried":
        return Tried(self.judged.map(torch.clone), self.settled.clone(), self.open.clone())


class Models(NamedTuple):
    """One model in two precisions, which share their weights."""

    half: Model
    exact: Model


def judge_in_two_passes(
    models: Models,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    reserved: int = RESERVED,
    half: torch.dtype = torch.float16,
) -> Judged:
    """Judge all rows in half precision, and in fp32 those that the first pass cannot settle.

    The reference of recorded passes.
    """
    batch = JudgedBatch(sample, ids, Asked.of(models.exact, sample))
    return judge_open_rows(models.exact, batch, try_in_half(models, batch, reserved, half), reserved)


@torch.no_grad()
def try_in_half(
    models: Models, batch: JudgedBatch, reserved: int = RESERVED, half: torch.dtype = torch.float16
) -> Tried:
    """Judge all rows in half precision and a few again in fp32.  Nothing here waits for the device."""
    # no casts are kept: a caller's own autocast might use those of a recorded pass, or the reverse
    with torch.autocast(batch.ids.device.type, half, cache_enabled=False):
        first = judge_in_one_pass(models.half, batch.sample, batch.ids, reserved, batch.asked)
    clear = first.exact_with_ids & (first.margin > CLEAR)  # a margin that is not a number is above nothing
    count = math.ceil(len(batch.ids) / _CHECKED)
    checked = first.margin.where(clear, torch.inf).topk(count, largest=False).indices
    second = _in_fp32(models.exact, batch, checked, reserved)
    borne_out = second.exact_with_ids & ((second.margin - first.margin[checked]).abs() < _MOVED)
    settled = clear & (borne_out | ~clear[checked]).all()
    open_rows = (~settled).index_fill(0, checked, False)
    return Tried(_with_rows(first, checked, second), settled.index_fill(0, checked, False), open_rows)


@torch.no_grad()
def judge_open_rows(model: Model, batch: JudgedBatch, tried: Tried, reserved: int = RESERVED) -> Judged:
    """Judge in fp32 all rows that are left."""
    rows = tried.open.nonzero()[:, 0]
    return _with_rows(tried.judged, rows, _in_fp32(model, batch, rows, reserved)) if len(rows) else tried.judged


def _in_fp32(model: Model, batch: JudgedBatch, rows: Int[Tensor, "r"], reserved: int) -> Judged:
    some = batch.map(lambda tensor: tensor[rows])
    with torch.autocast(batch.ids.device.type, enabled=False):  # whatever the caller is in
        return judge_in_one_pass(model, some.sample, some.ids, reserved, some.asked)


def _with_rows(judged: Judged, rows: Int[Tensor, "r"], others: Judged) -> Judged:
    """Replace some rows."""
    return Judged(
        *(one.index_copy(0, rows, other) for one, other in zip(judged.tensors(), others.tensors(), strict=True))
    )
