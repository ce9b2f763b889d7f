"""GELU of hidden units with a bias if any, and the gradients of both, in one pass each.

The forward pass keeps slopes instead of the hidden units themselves: they cost a few operations more while the numbers
are at hand, and the backward pass is a product then, which waits for nothing but memory.  The normal distribution
function comes from a rational function times the density (Abramowitz and Stegun, formula 7.1.26, wrong by at most
1.5e-7), for the density is needed anyway and the library's erf takes longer than the memory does.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from longreach.engine.fused.groups import Groups, sum_groups
from longreach.engine.kernels import on_its_device
from longreach.engine.second_stream import beside

_ROWS, _COLUMNS = 8, 512


@triton.jit
def gelu_with_slope(x):
    bell = tl.exp2(-0.7213475204444817 * x * x)  # exp(-x^2 / 2)
    root = tl.rsqrt(1.0 + 0.23164189 * tl.abs(x))  # .3275911 / sqrt(2); a square root's inverse is one instruction
    t = root * root
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * bell
    share = tl.where(x < 0, tail, 1.0 - tail)
    return x * share, share + 0.3989422804 * x * bell


@triton.jit
def _gelu_forward(
    units,
    bias,
    after,
    rows,
    width,
    SLOPES: tl.constexpr,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column, model = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(2).to(tl.int64)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = (model * rows + row)[:, None] * width + column[None, :]
    x = tl.load(units + place, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        x += tl.load(bias + model * width + column, mask=column < width, other=0.0)[None, :]
    value, slope = gelu_with_slope(x)
    tl.store(after + place, value, mask=inside)
    if SLOPES:
        tl.store(units + place, slope, mask=inside)


@triton.jit
def _gelu_backward(
    d_after,
    slopes,
    d_units,
    sums,
    rows,
    width,
    rows_in_group,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    group, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    model, real = tl.program_id(2).to(tl.int64), column < width
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    end = tl.minimum(rows, (group + 1) * rows_in_group)
    for start in range(group * rows_in_group, end, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < end)[:, None] & real[None, :]
        place = (model * rows + row)[:, None] * width + column[None, :]
        slope = tl.load(slopes + place, mask=inside, other=0.0).to(tl.float32)
        d_unit = tl.load(d_after + place, mask=inside, other=0.0).to(tl.float32) * slope
        tl.store(d_units + place, d_unit, mask=inside)
        if BIASED:
            total += d_unit
    if BIASED:
        tl.store(sums + (model * tl.num_programs(0) + group) * width + column, tl.sum(total, 0), mask=real)


def gelu_and_slopes(units: Tensor, bias: Tensor | None, with_slopes: bool = True) -> tuple[Tensor, Tensor | None]:
    """Return GELU of units [rows, width] plus a bias, and its slopes if wanted, which overwrite the units.

    Each stacked model adds its bias to its rows.
    """
    after = torch.empty_like(units)
    width = units.shape[1]
    models = 1 if bias is None else bias.numel() // width
    rows = len(units) // models
    with on_its_device(units):
        _gelu_forward[(triton.cdiv(rows, _ROWS), triton.cdiv(width, _COLUMNS), models)](
            units,
            bias,
            after,
            rows,
            width,
            SLOPES=with_slopes,
            BIASED=bias is not None,
            ROWS=_ROWS,
            COLUMNS=_COLUMNS,
        )
    return after, units if with_slopes else None


def gelu_backward(d_after: Tensor, slopes: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of units and bias."""
    d_units = torch.empty_like(slopes)
    groups = Groups(slopes, models=1 if bias is None else bias.numel() // slopes.shape[1])
    sums = None if bias is None else groups.sums
    with on_its_device(slopes):
        _gelu_backward[groups.grid](
            d_after, slopes, d_units, sums, *groups.sizes, BIASED=bias is not None, **groups.block
        )
    return d_units, None if bias is None else beside(sum_groups, groups.sums).view(bias.shape)
