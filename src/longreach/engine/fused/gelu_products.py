"""Products that end or begin with GELU, with it inside: what is multiplied is not written and read in between.

The forward product of the hidden units applies GELU to what it has added up, and the backward product of the output
multiplies what it has added up with GELU's slopes and adds up the gradient of the bias.  Tiles come and go through
tensor descriptors, which GPUs have from Hopper on; all else goes through `gelu.py`.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from longreach.engine.fused.gelu import gelu_with_slope
from longreach.engine.fused.groups import sum_groups
from longreach.engine.kernels import multiprocessors, on_its_device
from longreach.engine.second_stream import beside

_ROWS, _COLUMNS, _DEPTH = 128, 128, 64
"""Of a tile, and how much of what is summed over it reads at a time.  Of sixty combinations with the two below, none
made a training step on an H200 faster."""
_WARPS, _STAGES = 4, 3
_PROGRAMS_PER_MULTIPROCESSOR = 2


def fits(x: Tensor, weight: Tensor) -> bool:
    """For rows x and a weight of a hidden net.  Of stacked models no tile may touch two: what is padding for one would
    be the other's numbers, which may be infinite."""
    aligned = all(size * x.element_size() % 16 == 0 for size in (x.shape[1], *weight.shape[-2:]))
    apart = weight.dim() == 2 or (len(x) // len(weight) % _ROWS == 0 and x.shape[1] % _DEPTH == 0)
    return aligned and apart and _can_launch(x.device, x.dtype)


@cache
def _can_launch(device: torch.device, dtype: torch.dtype) -> bool:
    """On a CPU Triton's interpreter has descriptors, but no products in bf16."""
    if device.type == "cpu":
        return dtype != torch.bfloat16
    return torch.cuda.get_device_capability(device) >= (9, 0)


@triton.jit
def _put(
    after,
    slopes,
    units,
    bias,
    model,
    row,
    column,
    width,
    SLOPES: tl.constexpr,
    BIASED: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    if BIASED:
        place = column + tl.arange(0, COLUMNS)
        units += tl.load(bias + model * width + place, mask=place < width, other=0.0)[None, :]
    value, slope = gelu_with_slope(units)
    after.store([row, column], value.to(after.dtype))
    if SLOPES:
        slopes.store([row, column], slope.to(slopes.dtype))


@triton.jit
def _gelu_product_forward(
    x,
    weight,
    bias,
    after,
    slopes,
    rows,
    width,
    depth,
    tiles,
    SLOPES: tl.constexpr,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """`rows` are those of a model.  A program does several tiles, so that it reads the next while it writes one."""
    across = tl.cdiv(width, COLUMNS)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = tile // across * ROWS, tile % across * COLUMNS
        model = row // rows
        units = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, depth, DEPTH):
            units = tl.dot(x.load([row, start]), weight.load([model * width + column, start]).T, units)
        # by halves: GELU and what it needs fit into registers then
        first, second = tl.split(tl.permute(tl.reshape(units, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))
        _put(after, slopes, first, bias, model, row, column, width, SLOPES, BIASED, COLUMNS // 2)
        _put(after, slopes, second, bias, model, row, column + COLUMNS // 2, width, SLOPES, BIASED, COLUMNS // 2)


@triton.jit
def _gelu_product_backward(
    d_out,
    weight,
    slopes,
    d_units,
    sums,
    rows,
    width,
    depth,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    across = tl.cdiv(width, COLUMNS)
    group = tl.program_id(0) // across
    row, column = group * ROWS, tl.program_id(0) % across * COLUMNS
    model = row // rows
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, depth, DEPTH):
        total = tl.dot(d_out.load([row, start]), weight.load([model * depth + start, column]), total)
    total *= slopes.load([row, column]).to(tl.float32)
    d_units.store([row, column], total.to(d_units.dtype))
    if BIASED:
        place = column + tl.arange(0, COLUMNS)
        tl.store(sums + group * width + place, tl.sum(total, 0), mask=place < width)


def gelu_of_product(
    x: Tensor, weight: Tensor, bias: Tensor | None, with_slopes: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return GELU of x @ weight.T + bias, and its slopes if wanted, for x [rows, depth] and a weight [width, depth],
    or one for each of the stacked models."""
    width, depth = weight.shape[-2:]
    models = weight.numel() // (width * depth)
    after = x.new_empty(len(x), width)
    slopes = torch.empty_like(after) if with_slopes else None
    tiles = triton.cdiv(len(x), _ROWS) * triton.cdiv(width, _COLUMNS)
    half = [_ROWS, _COLUMNS // 2]
    with on_its_device(x):
        _gelu_product_forward[(min(tiles, _PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(x)),)](
            TensorDescriptor.from_tensor(x, [_ROWS, _DEPTH]),
            TensorDescriptor.from_tensor(weight.view(-1, depth), [_COLUMNS, _DEPTH]),
            bias,
            TensorDescriptor.from_tensor(after, half),
            None if slopes is None else TensorDescriptor.from_tensor(slopes, half),
            len(x) // models,
            width,
            depth,
            tiles,
            SLOPES=with_slopes,
            BIASED=bias is not None,
            **_block(),
        )
    return after, slopes


def backward_of_product(
    d_out: Tensor, weight: Tensor, slopes: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of units and bias, from that of the output [rows, depth] and its weight [depth, width]."""
    depth, width = weight.shape[-2:]
    models = weight.numel() // (width * depth)
    d_units = torch.empty_like(slopes)
    groups = triton.cdiv(len(d_out), _ROWS)
    shape = (models, groups // models, width)
    sums = None if bias is None else slopes.new_empty(shape, dtype=torch.float32)
    tile = [_ROWS, _COLUMNS]
    with on_its_device(d_out):
        _gelu_product_backward[(groups * triton.cdiv(width, _COLUMNS),)](
            TensorDescriptor.from_tensor(d_out, [_ROWS, _DEPTH]),
            TensorDescriptor.from_tensor(weight.view(-1, width), [_DEPTH, _COLUMNS]),
            TensorDescriptor.from_tensor(slopes, tile),
            TensorDescriptor.from_tensor(d_units, tile),
            sums,
            len(d_out) // models,
            width,
            depth,
            BIASED=bias is not None,
            **_block(),
        )
    return d_units, None if bias is None else beside(sum_groups, sums).view(bias.shape)


def _block() -> dict[str, int]:
    return {"ROWS": _ROWS, "COLUMNS": _COLUMNS, "DEPTH": _DEPTH, "num_warps": _WARPS, "num_stages": _STAGES}
