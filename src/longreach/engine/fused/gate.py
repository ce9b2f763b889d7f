"""Hidden units silu(gate) * up (SwiGLU) with biases if any, and their gradients, in one pass each.

One product computes the gates and the units that they multiply, side by side in a row.  The backward pass computes the
sigmoid again: to keep slopes would write and read more memory.
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


@triton.jit
def _load(units, gate_bias, up_bias, place, inside, weights, real, width, BIASED: tl.constexpr):
    gate = tl.load(units + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(units + place + width, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        gate += tl.load(gate_bias + weights, mask=real, other=0.0)[None, :]
        up += tl.load(up_bias + weights, mask=real, other=0.0)[None, :]
    return gate, up, tl.sigmoid(gate)


@triton.jit
def _gate_forward(
    units,
    gate_bias,
    up_bias,
    after,
    rows,
    width,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column, model = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(2).to(tl.int64)
    real = column < width
    inside, own = (row < rows)[:, None] & real[None, :], (model * rows + row)[:, None] * width
    place, weights = 2 * own + column[None, :], model * width + column
    gate, up, share = _load(units, gate_bias, up_bias, place, inside, weights, real, width, BIASED)
    tl.store(after + own + column[None, :], gate * share * up, mask=inside)


@triton.jit
def _gate_backward(
    d_after,
    units,
    gate_bias,
    up_bias,
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
    weights = model * width + column
    total_gate = tl.zeros((ROWS, COLUMNS), tl.float32)
    total_up = total_gate
    end = tl.minimum(rows, (group + 1) * rows_in_group)
    for start in range(group * rows_in_group, end, ROWS):
        row = start + tl.arange(0, ROWS)
        inside, own = (row < end)[:, None] & real[None, :], (model * rows + row)[:, None] * width
        place = 2 * own + column[None, :]
        gate, up, share = _load(units, gate_bias, up_bias, place, inside, weights, real, width, BIASED)
        d = tl.load(d_after + own + column[None, :], mask=inside, other=0.0).to(tl.float32)
        d_up = d * gate * share
        d_gate = d * up * share * (1.0 + gate * (1.0 - share))
        tl.store(d_units + place, d_gate, mask=inside)
        tl.store(d_units + place + width, d_up, mask=inside)
        if BIASED:
            total_gate += d_gate
            total_up += d_up
    if BIASED:
        sums += (model * tl.num_programs(0) + group) * 2 * width + column
        tl.store(sums, tl.sum(total_gate, 0), mask=real)
        tl.store(sums + width, tl.sum(total_up, 0), mask=real)


def gate_units(units: Tensor, biases: tuple[Tensor, ...]) -> Tensor:
    """Return silu(gate) * up of units [rows, 2 * width], which are gates beside ups; each has a bias, or none has."""
    rows, width = len(units), units.shape[1] // 2
    after = units.new_empty(rows, width)
    groups = Groups(after, _models(width, biases))
    grid = (triton.cdiv(groups.rows, groups.block["ROWS"]), groups.across, groups.models)
    with on_its_device(units):
        _gate_forward[grid](
            units, *(biases or (None, None)), after, groups.rows, width, BIASED=bool(biases), **groups.block
        )
    return after


def gate_backward(d_after: Tensor, units: Tensor, biases: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the gradients of units and biases."""
    d_units, width = torch.empty_like(units), d_after.shape[1]
    groups = Groups(d_after, _models(width, biases))
    shape = (groups.models, groups.count, 2, width)
    sums = d_after.new_empty(shape, dtype=torch.float32) if biases else None
    with on_its_device(units):
        _gate_backward[groups.grid](
            d_after,
            units,
            *(biases or (None, None)),
            d_units,
            sums,
            *groups.sizes,
            BIASED=bool(biases),
            **groups.block,
        )
    if sums is None:
        return d_units, ()
    return d_units, tuple(part.view(biases[0].shape) for part in beside(_sum_apart, sums))


def _models(width: int, biases: tuple[Tensor, ...]) -> int:
    """Return the number of stacked models; without biases all rows are treated alike."""
    return biases[0].numel() // width if biases else 1


def _sum_apart(sums: Tensor) -> tuple[Tensor, ...]:
    """Return the sums of gates and ups, each in a piece of memory of its own."""
    return tuple(part.contiguous() for part in sum_groups(sums).unbind(1))
