"""States at some places of each sequence, and their gradients back to where they came from."""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.kernels import on_its_device

_NUMBERS = 2048


@triton.jit
def _take(source, target, number, rows, width, BACK: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of the source by their numbers into the target one after the other, or back."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    far = tl.load(number + row, mask=row < rows, other=0)[:, None] * width + column[None, :]
    near = row.to(tl.int64)[:, None] * width + column[None, :]
    if BACK:
        tl.store(target + far, tl.load(source + near, mask=inside), mask=inside)
    else:
        tl.store(target + near, tl.load(source + far, mask=inside), mask=inside)


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, number: Tensor) -> Tensor:
        ctx.save_for_backward(number)
        ctx.rows = len(x)
        taken = x.new_empty(len(number), x.shape[1])
        copy_rows(x.contiguous(), taken, number, back=False)
        return taken

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (number,) = ctx.saved_tensors
        d_x = gradients[0].new_zeros(ctx.rows, gradients[0].shape[1])
        copy_rows(gradients[0].contiguous(), d_x, number, back=True)
        return d_x, None


def copy_rows(source: Tensor, target: Tensor, number: Tensor, back: bool) -> None:
    """Rows of the source by their numbers into the target one after the other, or back."""
    width = source.shape[1]
    block = triton.next_power_of_2(width)
    height = max(1, _NUMBERS // block)
    with on_its_device(source):
        _take[(triton.cdiv(len(number), height),)](
            source, target, number, len(number), width, BACK=back, ROWS=height, WIDTH=block
        )


def take_rows(x: Tensor, number: Tensor) -> Tensor:
    """Rows of x [rows, width] by their numbers, none of which comes twice: gradients need not be added up."""
    taken: Tensor = _TakeRows.apply(x, number)
    return taken
