"""Sums over rows, in groups: each group of rows adds up its own, and what remains is little.

No two programs add to the same number, so that sums have the same bits every time.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import math
from functools import cached_property

import torch
import triton
import triton.language as tl
from torch import Tensor

from longreach.engine.kernels import multiprocessors, on_its_device

_ROWS, _COLUMNS = 16, 128
_GROUPS, _NARROW = 256, 16
"""That one program sums up at once, and their columns: many small programs, each of which waits for memory once."""
PROGRAMS_PER_MULTIPROCESSOR = 8
"""Enough to keep memory busy, and few enough that the rest of the sum is quick."""


def count_groups(x: Tensor, rows: int, height: int, programs: int, others: int) -> int:
    """In how many groups rows are gone through, `height` at a time, so that a multiprocessor has so many programs where
    so many `others` do the same for other columns or models."""
    most: int = triton.cdiv(rows, height)
    return min(most, max(1, programs * multiprocessors(x) // others))


class Groups:
    """How programs share the rows of each model and the columns of x [rows, width]."""

    def __init__(self, x: Tensor, models: int) -> None:
        self.x, self.models = x, models
        self.rows, self.width = len(x) // models, x.shape[1]
        self.across = triton.cdiv(self.width, _COLUMNS)
        self.count = count_groups(x, self.rows, _ROWS, PROGRAMS_PER_MULTIPROCESSOR, others=self.across * models)

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.count, self.across, self.models

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows of a model, columns, rows of a group."""
        return self.rows, self.width, triton.cdiv(self.rows, self.count)

    @property
    def block(self) -> dict[str, int]:
        return {"ROWS": _ROWS, "COLUMNS": _COLUMNS}

    @cached_property
    def sums(self) -> Tensor:
        """Of each group, in fp32."""
        return self.x.new_empty(self.models, self.count, self.width, dtype=torch.float32)


@triton.jit
def _sum_groups(sums, total, groups, width, GROUPS: tl.constexpr, COLUMNS: tl.constexpr):
    column, part = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    group, model = part * GROUPS + tl.arange(0, GROUPS), tl.program_id(2).to(tl.int64)
    inside = (group < groups)[:, None] & (column < width)[None, :]
    found = tl.load(sums + (model * groups + group)[:, None] * width + column[None, :], mask=inside, other=0.0)
    place = (model * tl.num_programs(1) + part) * width + column
    tl.store(total + place, tl.sum(found, 0), mask=column < width)


def sum_groups(sums: Tensor) -> Tensor:
    """Of each model, over its groups: [models, groups, ...].  Torch's own sum would first clear a place to wait at."""
    models, groups, *shape = sums.shape
    width = math.prod(shape)
    while groups > 1:
        block = min(_GROUPS, triton.next_power_of_2(groups))
        parts = triton.cdiv(groups, block)
        total = sums.new_empty(models, parts, *shape)
        with on_its_device(sums):
            _sum_groups[(triton.cdiv(width, _NARROW), parts, models)](
                sums, total, groups, width, GROUPS=block, COLUMNS=_NARROW
            )
        sums, groups = total, parts
    return sums[:, 0]


@triton.jit
def _sum_rows(x, sums, rows, width, rows_in_group, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    group, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    model, real = tl.program_id(2).to(tl.int64), column < width
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    end = tl.minimum(rows, (group + 1) * rows_in_group)
    for start in range(group * rows_in_group, end, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < end)[:, None] & real[None, :]
        place = (model * rows + row)[:, None] * width + column[None, :]
        total += tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(sums + (model * tl.num_programs(0) + group) * width + column, tl.sum(total, 0), mask=real)


def sum_rows(x: Tensor, models: int) -> Tensor:
    """The sum over the rows of each model [models, width], in fp32."""
    groups = Groups(x, models)
    with on_its_device(x):
        _sum_rows[groups.grid](x, groups.sums, *groups.sizes, **groups.block)
    return sum_groups(groups.sums)
