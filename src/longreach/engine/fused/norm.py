"""A sum and its norms in one kernel.

The output of a branch is added to the states, and the norms of the sum are computed while it is at hand.  States are
read once and written once, forward and backward.  A GPT-NeoX layer reads two norms of the same states; a sequential
layer and the head read one.  Norms are layer norms or RMS norms, with biases or without.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from longreach.engine.fused.groups import count_groups, sum_groups
from longreach.engine.kernels import on_its_device
from longreach.engine.second_stream import beside


@triton.jit
def _norm_forward(
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
    ADDED_BIASES: tl.constexpr,
    RMS: tl.constexpr,
    BIASED: tl.constexpr,
    TWO: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    model, real = tl.program_id(1).to(tl.int64), column < width
    inside = (row < rows)[:, None] & real[None, :]
    place = (model * rows + row)[:, None] * width + column[None, :]
    scale, weights = scale + model * rows, model * width + column
    value = tl.load(x + place, mask=inside, other=0.0)
    if ADDS:
        value += tl.load(added + place, mask=inside, other=0.0).to(tl.float32)
        if ADDED_BIASES > 0:
            value += tl.load(added_bias1 + weights, mask=real, other=0.0)[None, :]
        if ADDED_BIASES > 1:
            value += tl.load(added_bias2 + weights, mask=real, other=0.0)[None, :]
        tl.store(total + place, value, mask=inside)
    off = value
    if not RMS:
        centre = tl.sum(value, 1) / width
        off = tl.where(inside, value - centre[:, None], 0.0)
    factor = tl.rsqrt(tl.sum(off * off, 1) / width + eps)
    if not RMS:
        tl.store(mean + model * rows + row, centre, mask=row < rows)
    tl.store(scale + row, factor, mask=row < rows)
    hat = off * factor[:, None]
    for_1 = hat * tl.load(weight1 + weights, mask=real, other=0.0)[None, :]
    if BIASED:
        for_1 += tl.load(bias1 + weights, mask=real, other=0.0)[None, :]
    tl.store(normed1 + place, for_1, mask=inside)
    if TWO:
        for_2 = hat * tl.load(weight2 + weights, mask=real, other=0.0)[None, :]
        if BIASED:
            for_2 += tl.load(bias2 + weights, mask=real, other=0.0)[None, :]
        tl.store(normed2 + place, for_2, mask=inside)


@triton.jit
def _norm_backward(
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
    ADDED_BIASES: tl.constexpr,
    RMS: tl.constexpr,
    BIASED: tl.constexpr,
    TWO: tl.constexpr,
    SUMS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    group, column = tl.program_id(0), tl.arange(0, WIDTH)
    model, real = tl.program_id(1).to(tl.int64), column < width
    scale, weights = scale + model * rows, model * width + column
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
        value = tl.load(total + place, mask=inside, other=0.0)
        factor = tl.load(scale + row, mask=row < end, other=0.0)[:, None]
        if not RMS:
            value -= tl.load(mean + model * rows + row, mask=row < end, other=0.0)[:, None]
        hat = tl.where(inside, value * factor, 0.0)
        d1 = tl.load(d_normed1 + place, mask=inside, other=0.0).to(tl.float32)
        d_hat = d1 * w1
        if TWO:
            d2 = tl.load(d_normed2 + place, mask=inside, other=0.0).to(tl.float32)
            d_hat += d2 * w2
            d_w2 += d2 * hat
            if BIASED:
                d_b2 += d2
        along = tl.sum(d_hat * hat, 1) / width
        if not RMS:
            level = tl.sum(d_hat, 1) / width
            d_hat -= level[:, None]
        d_value = factor * (d_hat - hat * along[:, None])
        if GOES_ON:
            d_value += tl.load(d_total + place, mask=inside, other=0.0)
        d_value = tl.where(inside, d_value, 0.0)
        tl.store(d_x + place, d_value, mask=inside)
        if ADDS:
            tl.store(d_added + place, d_value, mask=inside)
        if ADDED_BIASES > 0:
            d_bias += d_value
        d_w1 += d1 * hat
        if BIASED:
            d_b1 += d1
    sums += (model * tl.num_programs(0) + group) * SUMS * width + column
    tl.store(sums, tl.sum(d_w1, 0), mask=real)
    if BIASED:
        sums += width
        tl.store(sums, tl.sum(d_b1, 0), mask=real)
    if TWO:
        sums += width
        tl.store(sums, tl.sum(d_w2, 0), mask=real)
        if BIASED:
            sums += width
            tl.store(sums, tl.sum(d_b2, 0), mask=real)
    if ADDED_BIASES > 0:
        tl.store(sums + width, tl.sum(d_bias, 0), mask=real)


class _AddAndNorm(torch.autograd.Function):
    """Adds to states and normalizes the sum.  Parameters are the biases that are added, then those of each norm."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, added: Tensor | None, kind: "_Kind", dtype: torch.dtype, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        biases, weights, shifts = kind.split(parameters)
        total = x if added is None else torch.empty_like(x)
        normed = [x.new_empty(x.shape, dtype=dtype) for _ in weights]
        mean, scale = None if kind.rms else x.new_empty(len(x)), x.new_empty(len(x))
        models, rows, width, sizes = _sizes(x, weights[0])
        ends = [part for pair in zip(_pad(weights, 2), _pad(shifts, 2), strict=True) for part in pair]
        with on_its_device(x):
            _norm_forward[(triton.cdiv(rows, sizes["ROWS"]), models)](
                x,
                added,
                *_pad(biases, 2),
                *ends,
                total,
                *_pad(normed, 2),
                mean,
                scale,
                rows,
                width,
                kind.eps,
                ADDS=added is not None,
                **kind.switches,
                **sizes,
            )
        ctx.save_for_backward(total, mean, scale, *weights)
        ctx.kind, ctx.added = kind, None if added is None else added.dtype
        ctx.set_materialize_grads(False)  # after the last layer only the norm is used
        return total.view_as(total), *normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor | None, *d_normed: Tensor) -> tuple[Tensor | None, ...]:
        total, mean, scale, *weights = ctx.saved_tensors
        kind: _Kind = ctx.kind
        models, rows, width, sizes = _sizes(total, weights[0])
        # each group of rows adds up its part of the weights' gradients; narrow rows need more of them to fill a GPU
        programs = 16 if sizes["WIDTH"] <= 256 else 4
        groups = count_groups(total, rows, sizes["ROWS"], programs, others=models)
        adds = ctx.added is not None
        d_x = torch.empty_like(total)
        d_added = total.new_empty(total.shape, dtype=ctx.added) if adds else None
        sums = total.new_empty(models, groups, kind.sums, width)
        with on_its_device(total):
            _norm_backward[(groups, models)](
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
                SUMS=kind.sums,
                **kind.switches,
                **sizes,
            )
        found = beside(_apart, sums, kind.added_biases)
        return d_x, d_added, None, None, *(part.view(weights[0].shape) for part in found)


class _Kind(NamedTuple):
    """The kind of a sum and its norms: constants of the kernels."""

    eps: float
    rms: bool
    """RMS norms, which subtract no mean."""
    biased: bool
    """Whether norms have biases."""
    norms: int
    added_biases: int

    @property
    def switches(self) -> dict[str, Any]:
        """Return the constants that both kernels need."""
        return {"ADDED_BIASES": self.added_biases, "RMS": self.rms, "BIASED": self.biased, "TWO": self.norms == 2}

    @property
    def sums(self) -> int:
        """Return the number of parameters whose gradients differ: all biases that are added have the same one."""
        return self.norms * (1 + self.biased) + (self.added_biases > 0)

    def split(self, parameters: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """Return the biases that are added, the weights of the norms and their biases."""
        step, own = 1 + self.biased, parameters[self.added_biases :]
        return parameters[: self.added_biases], own[::step], own[1::step] if self.biased else ()


def _apart(sums: Tensor, added_biases: int) -> tuple[Tensor, ...]:
    """Return gradients of parameters in their order, each in a piece of memory of its own."""
    parts = sum_groups(sums).unbind(1)
    if not added_biases:
        return tuple(part.contiguous() for part in parts)
    copies = (parts[-1].clone() for _ in range(added_biases - 1))
    return parts[-1].contiguous(), *copies, *(part.contiguous() for part in parts[:-1])


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
    biases: tuple[Tensor, ...],
    norms: tuple[nn.Module, ...],
    dtype: torch.dtype,
) -> tuple[Tensor, ...]:
    """Return the sum of states x [rows, width], `added` and biases in fp32, and one norm of it or two in `dtype`.

    Norms are of one class.  Each stacked model has its own parameters and equally many rows.
    """
    parameters = [parameter for norm in norms for parameter in (norm.weight, getattr(norm, "bias", None))]
    given = [parameter for parameter in parameters if parameter is not None]
    rms = isinstance(norms[0], nn.RMSNorm)
    kind = _Kind(cast(float, norms[0].eps), rms, len(given) == len(parameters), len(norms), len(biases))
    found: tuple[Tensor, ...] = _AddAndNorm.apply(x, added, kind, dtype, *biases, *given)
    return found
