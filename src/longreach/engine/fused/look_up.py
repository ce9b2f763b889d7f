"""Rows of small tables by their numbers, and the tables' gradients, in one pass over the rows each way."""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.fused.groups import count_groups, sum_groups
from longreach.engine.fused.places import copy_rows
from longreach.engine.kernels import on_its_device

_ROWS, _COLUMNS = 64, 64
_PROGRAMS_PER_MULTIPROCESSOR = 4


@triton.jit
def _sum_by_number(
    number,
    d_rows,
    sums,
    rows,
    width,
    entries,
    rows_in_group,
    PRECISION: tl.constexpr,
    ENTRIES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A product with a matrix of zeros and ones, which is never written."""
    group, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    model, entry = tl.program_id(2).to(tl.int64), tl.arange(0, ENTRIES)
    total = tl.zeros((ENTRIES, COLUMNS), tl.float32)
    end = tl.minimum(rows, (group + 1) * rows_in_group)
    for start in range(group * rows_in_group, end, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < end)[:, None] & (column < width)[None, :]
        own = tl.load(number + model * rows + row, mask=row < end, other=-1) - model * entries
        chosen = (entry[:, None] == own[None, :]).to(tl.float32)
        place = (model * rows + row)[:, None] * width + column[None, :]
        values = tl.load(d_rows + place, mask=inside, other=0.0).to(tl.float32)
        total = tl.dot(chosen, values, total, input_precision=PRECISION)
    place = ((model * tl.num_programs(0) + group) * entries + entry)[:, None] * width + column[None, :]
    tl.store(sums + place, total, mask=(entry < entries)[:, None] & (column < width)[None, :])


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, number: Tensor) -> Tensor:
        ctx.save_for_backward(number)
        ctx.shape, ctx.dtype = table.shape, table.dtype
        return copy_rows(table.contiguous().view(-1, table.shape[2]), number)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (number,) = ctx.saved_tensors
        models, entries, width = ctx.shape
        d_rows = gradients[0].contiguous()
        rows, across = len(d_rows) // models, triton.cdiv(width, _COLUMNS)
        groups = count_groups(d_rows, rows, _ROWS, _PROGRAMS_PER_MULTIPROCESSOR, others=across * models)
        sums = d_rows.new_empty(models, groups, entries, width, dtype=torch.float32)
        with on_its_device(d_rows):
            _sum_by_number[(groups, across, models)](
                number,
                d_rows,
                sums,
                rows,
                width,
                entries,
                triton.cdiv(rows, groups),
                # tf32 holds all that half precision does
                PRECISION="ieee" if d_rows.dtype == torch.float32 else "tf32",
                ENTRIES=max(16, triton.next_power_of_2(entries)),
                ROWS=_ROWS,
                COLUMNS=_COLUMNS,
            )
        return sum_groups(sums).to(ctx.dtype), None


def look_up(table: Tensor, number: Tensor) -> Tensor:
    """Rows [numbers, width] of a table [models, entries, width], whose entries are counted through all models; the rows
    belong to the models in turn."""
    found: Tensor = _LookUp.apply(table, number.flatten())
    return found
