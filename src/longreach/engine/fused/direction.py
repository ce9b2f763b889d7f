"""The unit vectors that a pointer head compares, in one kernel each way.

The reference is `direction` of `model/position_heads/pointer.py`.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.kernels import on_its_device

_EPS = 1e-12
"""The smallest norm that `torch.nn.functional.normalize` divides by."""


@triton.jit
def _direction_forward(
    x,
    token,
    out,
    rows,
    width,
    root,
    EPS: tl.constexpr,
    ADDS: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    added = tl.zeros((ROWS, WIDTH), tl.float32)
    if ADDS:
        added = tl.load(token + place, mask=inside, other=0.0).to(tl.float32)
        added *= (root / tl.maximum(tl.sqrt(tl.sum(added * added, 1)), EPS))[:, None]
    for part in range(PARTS):
        own = (row.to(tl.int64) * PARTS + part)[:, None] * width + column[None, :]
        value = tl.load(x + own, mask=inside, other=0.0).to(tl.float32) + added
        value /= tl.maximum(tl.sqrt(tl.sum(value * value, 1)), EPS)[:, None]
        tl.store(out + own, value, mask=inside)


@triton.jit
def _backward_normalise(d_out, value, EPS: tl.constexpr):
    """Return the gradient of rows that are divided by their norms, but by EPS where these are smaller."""
    norm = tl.sqrt(tl.sum(value * value, 1))[:, None]
    divisor = tl.maximum(norm, EPS)
    unit = value / divisor
    along = tl.where(norm >= EPS, tl.sum(unit * d_out, 1)[:, None], 0.0)
    return (d_out - unit * along) / divisor


@triton.jit
def _direction_backward(
    d_out,
    x,
    token,
    d_x,
    d_token,
    rows,
    width,
    root,
    EPS: tl.constexpr,
    ADDS: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    added = tl.zeros((ROWS, WIDTH), tl.float32)
    raw, d_added = added, added
    if ADDS:
        raw = tl.load(token + place, mask=inside, other=0.0).to(tl.float32)
        added = raw * (root / tl.maximum(tl.sqrt(tl.sum(raw * raw, 1)), EPS))[:, None]
    for part in range(PARTS):
        own = (row.to(tl.int64) * PARTS + part)[:, None] * width + column[None, :]
        value = tl.load(x + own, mask=inside, other=0.0).to(tl.float32) + added
        d_value = _backward_normalise(tl.load(d_out + own, mask=inside, other=0.0).to(tl.float32), value, EPS)
        tl.store(d_x + own, d_value, mask=inside)
        d_added += d_value
    if ADDS:
        tl.store(d_token + place, _backward_normalise(d_added * root, raw, EPS), mask=inside)


class _Direction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor | None, width: int, dtype: torch.dtype) -> Tensor:
        x, token = x.contiguous(), None if token is None else token.contiguous()
        out = torch.empty_like(x, dtype=dtype)
        rows, sizes = _sizes(x, width)
        with on_its_device(x):
            _direction_forward[(triton.cdiv(rows, sizes["ROWS"]),)](
                x, token, out, rows, width, width**0.5, ADDS=token is not None, **sizes
            )
        ctx.save_for_backward(x, token)
        ctx.width = width
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, token = ctx.saved_tensors
        width = ctx.width
        d_x, d_token = torch.empty_like(x), None if token is None else torch.empty_like(token)
        rows, sizes = _sizes(x, width)
        with on_its_device(x):
            _direction_backward[(triton.cdiv(rows, sizes["ROWS"]),)](
                gradients[0].contiguous(),
                x,
                token,
                d_x,
                d_token,
                rows,
                width,
                width**0.5,
                ADDS=token is not None,
                **sizes,
            )
        return d_x, d_token, None, None


def _sizes(x: Tensor, width: int) -> tuple[int, dict[str, Any]]:
    """Return the number of tokens, and the constants of a kernel."""
    block = triton.next_power_of_2(width)
    return x.numel() // x.shape[-1], {
        "EPS": _EPS,
        "PARTS": x.shape[-1] // width,
        "ROWS": max(1, 512 // block),
        "WIDTH": block,
        "num_warps": min(8, max(1, block // 128)),
    }


def direction(
    x: Float[Tensor, "b t parts_w"], token: Float[Tensor, "b t w"] | None, width: int, dtype: torch.dtype
) -> Float[Tensor, "b t parts_w"]:
    """Return the unit vectors of one or several parts of each row, on top of the row's token, in the precision `dtype`.

    Each part has `width` columns.
    """
    found: Tensor = _Direction.apply(x, token, width, dtype)
    return found
