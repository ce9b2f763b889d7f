"""Cross-entropy over a large vocabulary: one pass over the logits each way, in their own precision.

The reference is `torch.nn.functional.cross_entropy` of the logits in fp32, which torch writes out twice.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.kernels import on_its_device

_ENTRIES = 2048
"""Logits that a program reads at once."""


@triton.jit
def _cross_entropy_forward(logits, labels, losses, normalizers, entries, ENTRIES: tl.constexpr):
    """One row: the log of the summed exponentials, and how far the label's logit is below it."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    logits += row * entries
    # each lane has a sum of its own, so that the loop need not wait for the others
    peak = tl.full((ENTRIES,), float("-inf"), tl.float32)
    total = tl.zeros((ENTRIES,), tl.float32)
    for start in range(0, entries, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)
        value = tl.load(logits + entry, mask=entry < entries, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, value)
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - safe) + tl.exp(value - safe)
        peak = higher
    highest = tl.max(peak, 0)
    normalizer = highest + tl.log(tl.sum(total * tl.exp(peak - highest), 0))
    real = label >= 0
    wanted = tl.load(logits + label, mask=real, other=0.0).to(tl.float32)
    tl.store(losses + row, tl.where(real, normalizer - wanted, 0.0))
    tl.store(normalizers + row, normalizer)


@triton.jit
def _cross_entropy_backward(d_losses, logits, labels, normalizers, d_logits, entries, ENTRIES: tl.constexpr):
    row, entry = tl.program_id(0).to(tl.int64), tl.program_id(1) * ENTRIES + tl.arange(0, ENTRIES)
    label, inside = tl.load(labels + row), entry < entries
    place = row * entries + entry
    d_loss = tl.load(d_losses + row).to(tl.float32)
    value = tl.load(logits + place, mask=inside, other=float("-inf")).to(tl.float32)
    share = tl.exp(value - tl.load(normalizers + row)) - tl.where(entry == label, 1.0, 0.0)
    tl.store(d_logits + place, tl.where(label >= 0, share * d_loss, 0.0), mask=inside)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = logits.contiguous(), labels.contiguous()
        losses = logits.new_empty(labels.shape, dtype=torch.float32)
        normalizers = torch.empty_like(losses)
        with on_its_device(logits):
            _cross_entropy_forward[(labels.numel(),)](
                logits, labels, losses, normalizers, logits.shape[-1], ENTRIES=_ENTRIES, num_warps=8
            )
        ctx.save_for_backward(logits, labels, normalizers)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        logits, labels, normalizers = ctx.saved_tensors
        d_logits, entries = torch.empty_like(logits), logits.shape[-1]
        with on_its_device(logits):
            _cross_entropy_backward[(labels.numel(), triton.cdiv(entries, _ENTRIES))](
                gradients[0].contiguous(), logits, labels, normalizers, d_logits, entries, ENTRIES=_ENTRIES, num_warps=8
            )
        return d_logits, None


def cross_entropy(logits: Float[Tensor, "b a v"], labels: Int[Tensor, "b a"]) -> Float[Tensor, "b a"]:
    """Return the loss of each label in fp32, and 0 where it is negative."""
    found: Tensor = _CrossEntropy.apply(logits, labels)
    return found
