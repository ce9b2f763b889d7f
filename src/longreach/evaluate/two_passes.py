"""Exact match at the speed of tensor cores, decided as fp32 decides.

Products in fp32 have no tensor cores, those in half precision have; but where two logits are close, rounding would
decide.  So on a GPU a first pass in half precision settles only what it leaves no doubt about: answers that are right
throughout, every decision by a clear margin.  All others are judged again in fp32.  That includes those that are
clearly wrong: rounding breaks an answer more easily than it mends one, and an error must be the model's own.

Of the answers that would be settled, those with the closest decisions are judged again in any case.  If fp32 does not
bear out the first pass there, none of its answers is believed.
"""

import math
from dataclasses import fields, replace

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.attention import Attention
from longreach.evaluate.exact_match import Asked, Judged, judge_in_one_pass
from longreach.model import RESERVED, Model
from longreach.tasks import Sample

CLEAR = 1.0
"""The distance of the two largest logits from which half precision may settle a decision.  Rounding moves it by
hundredths."""
_MOVED = CLEAR / 4
"""What the closest decision of an answer may move at most between the passes."""
_CHECKED = 16
"""Of so many rows one is judged in both, whatever the first pass says."""
_ROWS = 4
"""In a smaller batch, the row that is judged twice would cost as much as the first pass saves."""
_WORK = 1 << 37
"""Tokens times weights from which the first pass pays: with less, a pass waits for Python and not for arithmetic."""


def judge(
    model: Model, sample: Sample, ids: Int[Tensor, "b g t"], reserved: int = RESERVED, try_half: bool = True
) -> Judged:
    """Every answer token, and every ID where the model predicts them, given the true prefix, as fp32 decides.

    Half precision is tried where it may save time, unless the caller knows better."""
    model.check_ids(ids)
    if try_half and half_pays(model, sample):
        return judge_in_two_passes(model, sample, ids, reserved)
    with torch.autocast(ids.device.type, enabled=False):
        return judge_in_one_pass(model, sample, ids, reserved)


def half_pays(model: Model, sample: Sample) -> bool:
    """Whether a pass in half precision would be far quicker: on a GPU, for large batches.  Attention that is written
    out is in fp32 anyway, and a recurrent model waits for its steps."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    work = sample.tokens.numel() * sum(parameter.numel() for parameter in model.parameters())
    fused = bool(attentions) and all(attention.fused for attention in attentions)
    return sample.tokens.is_cuda and fused and len(sample.tokens) >= _ROWS and work >= _WORK


@torch.no_grad()
def judge_in_two_passes(
    model: Model,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    reserved: int = RESERVED,
    half: torch.dtype = torch.float16,
) -> Judged:
    """The first in half precision, the second in fp32 and only for those rows that the first cannot settle."""
    asked = Asked.of(model, sample)

    def in_fp32(rows: Int[Tensor, "r"]) -> Judged:
        some = sample.map(lambda tensor: tensor[rows])
        with torch.autocast(ids.device.type, enabled=False):  # whatever the caller is in
            return judge_in_one_pass(model, some, ids[rows], reserved, asked.at(rows))

    with torch.autocast(ids.device.type, half):
        first = judge_in_one_pass(model, sample, ids, reserved, asked)
    clear = first.exact_with_ids & (first.margin > CLEAR)  # a margin that is not a number is above nothing
    # launched before anything waits for the first pass: the device has no pause
    count = math.ceil(len(ids) / _CHECKED)
    checked = first.margin.where(clear, torch.inf).topk(count, largest=False).indices
    second = in_fp32(checked)
    borne_out = second.exact_with_ids & ((second.margin - first.margin[checked]).abs() < _MOVED)
    settled = clear & (borne_out | ~clear[checked]).all()
    judged = _with_rows(replace(first, quick=settled), checked, second)
    open_rows = (~settled).index_fill(0, checked, False).nonzero()[:, 0]
    return _with_rows(judged, open_rows, in_fp32(open_rows)) if len(open_rows) else judged


def _with_rows(judged: Judged, rows: Int[Tensor, "r"], others: Judged) -> Judged:
    """The same, with some rows replaced."""
    names = [field.name for field in fields(Judged)]
    return Judged(**{name: getattr(judged, name).index_copy(0, rows, getattr(others, name)) for name in names})
