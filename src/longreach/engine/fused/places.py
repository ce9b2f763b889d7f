"""States at some places of each sequence, and their gradients back to where they came from."""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.kernels import on_its_device

_NUMBERS = 2048


@triton.jit
def _copy_rows(source, target, number, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    from_row = tl.load(number + row, mask=row < rows, other=-1)[:, None]
    value = tl.load(source + from_row * width + column[None, :], mask=inside & (from_row >= 0), other=0.0)
    tl.store(target + row.to(tl.int64)[:, None] * width + column[None, :], value, mask=inside)


def copy_rows(source: Tensor, number: Tensor) -> Tensor:
    """Rows of the source by their numbers, one after the other; zeros where the number is -1."""
    width = source.shape[1]
    target = source.new_empty(len(number), width)
    block = triton.next_power_of_2(width)
    height = max(1, _NUMBERS // block)
    with on_its_device(source):
        _copy_rows[(triton.cdiv(len(number), height),)](
            source, target, number, len(number), width, ROWS=height, WIDTH=block
        )
    return target


class Choice(NamedTuple):
    """Some of many rows by their numbers, none of which comes twice: gradients need not be added up."""

    number: Int[Tensor, "some"]
    back: Int[Tensor, "all"] | None
    """Where each of all rows went, -1 for those that were not chosen; only gradients need it."""

    @classmethod
    def of(cls, number: Int[Tensor, "some"], rows: int) -> "Choice":
        if not torch.is_grad_enabled():
            return cls(number, None)
        place = torch.arange(len(number), device=number.device)
        return cls(number, torch.full((rows,), -1, device=number.device).scatter_(0, number, place))


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, number: Tensor, back: Tensor | None) -> Tensor:
        ctx.save_for_backward(back)
        return copy_rows(x.contiguous(), number)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return copy_rows(gradients[0].contiguous(), back), None, None


def take_rows(x: Tensor, chosen: Choice) -> Tensor:
    """The chosen rows of x [rows, width]."""
    taken: Tensor = _TakeRows.apply(x, *chosen)
    return taken
