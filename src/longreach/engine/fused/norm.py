"""A sum and its norms in one kernel.

In a layer as GPT-NeoX has it, attention and feed-forward net read two norms of the same states.  Here a layer's output
is added to the states and both norms of the next layer are taken while the sum is at hand: states are read once and
written once, forward and backward.  After the last layer there is one norm.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from longreach.engine.fused.groups import count_groups, sum_groups
from longreach.engine.kernels import on_its_device
from longreach.engine.second_stream import beside


@triton.jit
def _forward(
    x,
    added,
    added_bias1,
    added_bias2,
    weight1,
    bias1,
    weight2,
    bias2,
    total,
    normed1,
    normed2,
    mean,
    scale,
    rows,
    width,
    eps,
    ADDS: tl.constexpr,
    TWO: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    model, real = tl.program_id(1).to(tl.int64), column < width
    inside = (row < rows)[:, None] & real[None, :]
    place = (model * rows + row)[:, None] * width + column[None, :]
    mean, scale, weights = mean + model * rows, scale + model * rows, model * width + column
    value = tl.load(x + place, mask=inside, other=0.0)
    if ADDS:
        value += tl.load(added + place, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(added_bias1 + weights, mask=real, other=0.0)[None, :]
        value += tl.load(added_bias2 + weights, mask=real, other=0.0)[None, :]
        tl.store(total + place, value, mask=inside)
    centre = tl.sum(value, 1) / width
    off = tl.where(inside, value - centre[:, None], 0.0)
    factor = tl.rsqrt(tl.sum(off * off, 1) / width + eps)
    tl.store(mean + row, centre, mask=row < rows)
    tl.store(scale + row, factor, mask=row < rows)
    hat = off * factor[:, None]
    for_1 = hat * tl.load(weight1 + weights, mask=real, other=0.0)[None, :]
    tl.store(normed1 + place, for_1 + tl.load(bias1 + weights, mask=real, other=0.0)[None, :], mask=inside)
    if TWO:
        for_2 = hat * tl.load(weight2 + weights, mask=real, other=0.0)[None, :]
        tl.store(normed2 + place, for_2 + tl.load(bias2 + weights, mask=real, other=0.0)[None, :], mask=inside)


@triton.jit
def _backward(
    d_total,
    d_normed1,
    d_normed2,
    total,
    mean,
    scale,
    weight1,
    weight2,
    d_x,
    d_added,
    sums,
    rows,
    width,
    rows_in_group,
    GOES_ON: tl.constexpr,
    ADDS: tl.constexpr,
    TWO: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    group, column = tl.program_id(0), tl.arange(0, WIDTH)
    model, real = tl.program_id(1).to(tl.int64), column < width
    mean, scale, weights = mean + model * rows, scale + model * rows, model * width + column
    w1 = tl.load(weight1 + weights, mask=real, other=0.0)[None, :]
    if TWO:
        w2 = tl.load(weight2 + weights, mask=real, other=0.0)[None, :]
    d_w1 = tl.zeros((ROWS, WIDTH), tl.float32)
    d_b1, d_w2, d_b2, d_bias = d_w1, d_w1, d_w1, d_w1
    end = tl.minimum(rows, (group + 1) * rows_in_group)
    for start in range(group * rows_in_group, end, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < end)[:, None] & real[None, :]
        place = (model * rows + row)[:, None] * width + column[None, :]
        centre = tl.load(mean + row, mask=row < end, other=0.0)[:, None]
        factor = tl.load(scale + row, mask=row < end, other=0.0)[:, None]
        hat = tl.where(inside, (tl.load(total + place, mask=inside, other=0.0) - centre) * factor, 0.0)
        d1 = tl.load(d_normed1 + place, mask=inside, other=0.0).to(tl.float32)
        d_hat = d1 * w1
        if TWO:
            d2 = tl.load(d_normed2 + place, mask=inside, other=0.0).to(tl.float32)
            d_hat += d2 * w2
            d_w2 += d2 * hat
            d_b2 += d2
        along = tl.sum(d_hat * hat, 1) / width
        level = tl.sum(d_hat, 1) / width
        d_value = factor * (d_hat - level[:, None] - hat * along[:, None])
        if GOES_ON:
            d_value += tl.load(d_total + place, mask=inside, other=0.0)
        d_value = tl.where(inside, d_value, 0.0)
        tl.store(d_x + place, d_value, mask=inside)
        if ADDS:
            tl.store(d_added + place, d_value, mask=inside)
            d_bias += d_value
        d_w1 += d1 * hat
        d_b1 += d1
    sums += (model * tl.num_programs(0) + group) * 5 * width + column
    tl.store(sums, tl.sum(d_w1, 0), mask=real)
    tl.store(sums + width, tl.sum(d_b1, 0), mask=real)
    tl.store(sums + 2 * width, tl.sum(d_w2, 0), mask=real)
    tl.store(sums + 3 * width, tl.sum(d_b2, 0), mask=real)
    tl.store(sums + 4 * width, tl.sum(d_bias, 0), mask=real)


class _AddAndNorm(torch.autograd.Function):
    """Of a sum and of one norm or two: weights come as (weight, bias) of each."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        bias1: Tensor | None,
        bias2: Tensor | None,
        eps: float,
        dtype: torch.dtype,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        total = x if added is None else torch.empty_like(x)
        normed = [x.new_empty(x.shape, dtype=dtype) for _ in weights[::2]]
        mean, scale = x.new_empty(len(x)), x.new_empty(len(x))
        models, rows, width, sizes = _sizes(x, weights[0])
        with on_its_device(x):
            _forward[(triton.cdiv(rows, sizes["ROWS"]), models)](
                x,
                added,
                bias1,
                bias2,
                *_pad(weights, 4),
                total,
                *_pad(normed, 2),
                mean,
                scale,
                rows,
                width,
                eps,
                ADDS=added is not None,
                TWO=len(normed) == 2,
                **sizes,
            )
        ctx.save_for_backward(total, mean, scale, *weights[::2])
        ctx.added = None if added is None else added.dtype
        ctx.set_materialize_grads(False)  # after the last layer only the norm is used
        return total.view_as(total), *normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor | None, *d_normed: Tensor) -> tuple[Tensor | None, ...]:
        total, mean, scale, *weights = ctx.saved_tensors
        models, rows, width, sizes = _sizes(total, weights[0])
        # each group of rows adds up its part of the weights' gradients; narrow rows need more of them to fill a GPU
        programs = 16 if sizes["WIDTH"] <= 256 else 4
        groups = count_groups(total, rows, sizes["ROWS"], programs, others=models)
        adds = ctx.added is not None
        d_x = torch.empty_like(total)
        d_added = total.new_empty(total.shape, dtype=ctx.added) if adds else None
        sums = total.new_empty(models, groups, 5, width)
        with on_its_device(total):
            _backward[(groups, models)](
                None if d_total is None else d_total.contiguous(),
                *_pad([gradient.contiguous() for gradient in d_normed], 2),
                total,
                mean,
                scale,
                *_pad(weights, 2),
                d_x,
                d_added,
                sums,
                rows,
                width,
                triton.cdiv(rows, groups),
                GOES_ON=d_total is not None,
                ADDS=adds,
                TWO=len(d_normed) == 2,
                **sizes,
            )
        found = [part.view(weights[0].shape) for part in beside(_apart, sums, 2 * len(weights), adds)]
        of_norms, of_biases = found[: 2 * len(weights)], found[2 * len(weights) :]
        return d_x, d_added, *_pad(of_biases, 2), None, None, *of_norms


def _apart(sums: Tensor, count: int, adds: bool) -> tuple[Tensor, ...]:
    """Gradients of so many weights of norms, and of both biases, which are equal, each in a piece of its own."""
    parts = sum_groups(sums).unbind(1)
    of_biases = (parts[4].contiguous(), parts[4].clone()) if adds else ()
    return *(part.contiguous() for part in parts[:count]), *of_biases


def _pad(tensors: Sequence[Tensor], size: int) -> list[Tensor | None]:
    return [*tensors, *[None] * (size - len(tensors))]


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, int, int, dict[str, int]]:
    """Models, rows of each, width, and the block that was fastest (for widths of 128, 256 and 768 on an H200)."""
    width = x.shape[1]
    models = weight.numel() // width
    block = triton.next_power_of_2(width)
    sizes = {"ROWS": max(1, 256 // block), "WIDTH": block, "num_warps": min(8, max(1, block // 128))}
    return models, len(x) // models, width, sizes


def add_and_norm(
    x: Tensor,
    added: Tensor | None,
    biases: tuple[Tensor, Tensor] | None,
    norms: tuple[nn.Module, ...],
    dtype: torch.dtype,
) -> tuple[Tensor, ...]:
    """States x [rows, width] with something and its two biases added, and one layer norm or two of the sum in the
    precision `dtype`.  Of stacked models each has its weights, and equally many rows."""
    weights = [weight for norm in norms for weight in (norm.weight, norm.bias)]
    found: tuple[Tensor, ...] = _AddAndNorm.apply(x, added, *(biases or (None, None)), norms[0].eps, dtype, *weights)
    return found
