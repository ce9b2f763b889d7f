"""Rotary softmax attention over short sequences in one kernel, for GPUs.

Kernels made for long sequences waste most of their work on fifty tokens, and turning queries and keys, taking heads
apart and putting them together again move more bytes than attention itself.  Here one program does a head of a
sequence, from the fused projection to the mixed values: what it reads and writes, it reads and writes once.  Nothing is
kept for the backward pass, which computes the weights again.

`Attention` and `rotate` are the reference that it is tested against, on a CPU through Triton's interpreter.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from longreach.engine.kernels import on_its_device

HEAD_SIZES = (32, 64, 128)


def most_tokens(dtype: torch.dtype) -> int:
    """Return the longest sequence for which a program is faster than torch's kernels.  Exact fp32 has no tensor
    cores, so that it soon is not.  A head may have as many dimensions."""
    return 64 if dtype == torch.float32 else 128


@triton.jit
def _load_half(start, rows, inside, stride, half, SIZE: tl.constexpr):
    """Half of the dimensions of something, for all tokens."""
    dims = half * SIZE + tl.arange(0, SIZE)
    return tl.load(start + rows[:, None] * stride + dims[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def _store_half(start, value, rows, inside, stride, half, SIZE: tl.constexpr):
    dims = half * SIZE + tl.arange(0, SIZE)
    tl.store(start + rows[:, None] * stride + dims[None, :], value, mask=inside[:, None])


@triton.jit
def _turn(first, second, cos, sin):
    """By the angles of their tokens, the first half against the second."""
    return (first * cos - second * sin).to(first.dtype), (second * cos + first * sin).to(second.dtype)


@triton.jit
def _angles(cos, sin, rows, inside, HALF: tl.constexpr, TURNS: tl.constexpr):
    """Of all tokens, for all heads; what is not turned gets any."""
    turn_cos = tl.full((rows.shape[0], HALF), 1.0, tl.float32)
    turn_sin = turn_cos
    if TURNS:
        turn_cos, turn_sin = _load_half(cos, rows, inside, HALF, 0, HALF), _load_half(sin, rows, inside, HALF, 0, HALF)
    return turn_cos, turn_sin


@triton.jit
def _load(
    start,
    turn_cos,
    turn_sin,
    growth,
    rows,
    inside,
    stride,
    scale,
    HALF: tl.constexpr,
    TURNS: tl.constexpr,
    GROWS: tl.constexpr,
):
    """Queries and keys, turned, half by half; values; and by what the scores of each query are multiplied."""
    q1, q2 = _load_half(start, rows, inside, stride, 0, HALF), _load_half(start, rows, inside, stride, 1, HALF)
    k1, k2 = _load_half(start, rows, inside, stride, 2, HALF), _load_half(start, rows, inside, stride, 3, HALF)
    v = _load_half(start, rows, inside, stride, 2, 2 * HALF)
    if TURNS:
        q1, q2 = _turn(q1, q2, turn_cos, turn_sin)
        k1, k2 = _turn(k1, k2, turn_cos, turn_sin)
    factor = tl.full(rows.shape, scale, tl.float32)
    if GROWS:
        factor *= tl.load(growth + rows, mask=inside, other=1.0)
    return q1, q2, k1, k2, v, factor


@triton.jit
def _weigh(q1, q2, k1, k2, factor, rows, tokens, PRECISION: tl.constexpr):
    """Scores, and the softmax of what they grow to.  Rows of padding see keys too, so that nothing is divided by 0."""
    scores = tl.dot(q1, tl.trans(k1), input_precision=PRECISION)
    scores += tl.dot(q2, tl.trans(k2), input_precision=PRECISION)
    seen = (rows[None, :] <= rows[:, None]) & (rows[None, :] < tokens)
    grown = tl.where(seen, scores * factor[:, None], float("-inf"))
    weights = tl.exp(grown - tl.max(grown, 1)[:, None])
    return scores, weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _forward(
    qkv,
    cos,
    sin,
    growth,
    mixed,
    tokens,
    heads,
    scale,
    growth_stride,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    TURNS: tl.constexpr,
    GROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """HEADS heads of a sequence, one after the other."""
    shares = heads // HEADS
    batch, first = (tl.program_id(0) // shares).to(tl.int64), tl.program_id(0) % shares * HEADS
    rows = tl.arange(0, BLOCK)
    inside = rows < tokens
    width, stride = heads * 2 * HALF, heads * 6 * HALF
    begin = batch * tokens
    turn_cos, turn_sin = _angles(cos + begin * HALF, sin + begin * HALF, rows, inside, HALF, TURNS)
    for head in range(first, first + HEADS):
        own = qkv + begin * stride + head * 6 * HALF
        own_growth = growth + batch * growth_stride + head * tokens
        q1, q2, k1, k2, v, factor = _load(
            own, turn_cos, turn_sin, own_growth, rows, inside, stride, scale, HALF, TURNS, GROWS
        )
        _, weights = _weigh(q1, q2, k1, k2, factor, rows, tokens, PRECISION)
        value = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        _store_half(mixed + begin * width + head * 2 * HALF, value, rows, inside, width, 0, 2 * HALF)


@triton.jit
def _backward(
    qkv,
    cos,
    sin,
    growth,
    d_mixed,
    d_qkv,
    d_growth,
    tokens,
    heads,
    scale,
    growth_stride,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    TURNS: tl.constexpr,
    GROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    shares = heads // HEADS
    batch, first = (tl.program_id(0) // shares).to(tl.int64), tl.program_id(0) % shares * HEADS
    rows = tl.arange(0, BLOCK)
    inside = rows < tokens
    width, stride = heads * 2 * HALF, heads * 6 * HALF
    begin = batch * tokens
    turn_cos, turn_sin = _angles(cos + begin * HALF, sin + begin * HALF, rows, inside, HALF, TURNS)
    for head in range(first, first + HEADS):
        own, d_own = qkv + begin * stride + head * 6 * HALF, d_qkv + begin * stride + head * 6 * HALF
        own_growth = growth + batch * growth_stride + head * tokens
        q1, q2, k1, k2, v, factor = _load(
            own, turn_cos, turn_sin, own_growth, rows, inside, stride, scale, HALF, TURNS, GROWS
        )
        scores, weights = _weigh(q1, q2, k1, k2, factor, rows, tokens, PRECISION)
        d_value = _load_half(d_mixed + begin * width + head * 2 * HALF, rows, inside, width, 0, 2 * HALF)
        d_v = tl.dot(tl.trans(weights.to(v.dtype)), d_value, input_precision=PRECISION)
        _store_half(d_own, d_v, rows, inside, stride, 2, 2 * HALF)
        d_weights = tl.dot(d_value, tl.trans(v), input_precision=PRECISION)
        d_grown = weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None])
        if GROWS:
            d_factor = tl.sum(d_grown * scores, 1) * scale
            tl.store(d_growth + (batch * heads + head) * tokens + rows, d_factor, mask=inside)
        d_scores = (d_grown * factor[:, None]).to(v.dtype)
        d_q1 = tl.dot(d_scores, k1, input_precision=PRECISION)
        d_q2 = tl.dot(d_scores, k2, input_precision=PRECISION)
        d_k1 = tl.dot(tl.trans(d_scores), q1, input_precision=PRECISION)
        d_k2 = tl.dot(tl.trans(d_scores), q2, input_precision=PRECISION)
        if TURNS:  # back
            d_q1, d_q2 = _turn(d_q1, d_q2, turn_cos, -turn_sin)
            d_k1, d_k2 = _turn(d_k1, d_k2, turn_cos, -turn_sin)
        _store_half(d_own, d_q1, rows, inside, stride, 0, HALF)
        _store_half(d_own, d_q2, rows, inside, stride, 1, HALF)
        _store_half(d_own, d_k1, rows, inside, stride, 2, HALF)
        _store_half(d_own, d_k2, rows, inside, stride, 3, HALF)


@torch.library.custom_op("longreach::short_attention", mutates_args=())
def short_attention(qkv: Tensor, cos: Tensor | None, sin: Tensor | None, growth: Tensor | None, heads: int) -> Tensor:
    """Causal attention from the fused projection [b, t, 3w], per head query, key and value, to mixed values [b, t, w].

    `cos` and `sin` [b, t, d/2] turn queries and keys; `growth` [b or 1, h, t] multiplies the scores of each query.
    """
    qkv, cos, sin, growth = _in_rows(qkv, cos, sin, growth)
    b, t, w3 = qkv.shape
    mixed = qkv.new_empty(b, t, w3 // 3)
    with on_its_device(qkv):
        sizes = _sizes(qkv, cos, growth, heads)
        if sizes["BLOCK"] <= 64:
            sizes["num_warps"] = 2  # more of them at a time
        _forward[(b * heads // sizes["HEADS"],)](*_or_any(qkv, cos, sin, growth), mixed, **sizes)
    return mixed


@torch.library.custom_op("longreach::short_attention_backward", mutates_args=())
def _short_attention_backward(
    d_mixed: Tensor, qkv: Tensor, cos: Tensor | None, sin: Tensor | None, growth: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    qkv, cos, sin, growth = _in_rows(qkv, cos, sin, growth)
    b, t, _ = qkv.shape
    d_qkv = torch.empty_like(qkv)
    d_growth = qkv.new_empty((b, heads, t) if growth is not None else 0, dtype=torch.float32)
    sizes = _sizes(qkv, cos, growth, heads)
    with on_its_device(qkv):
        tensors = (*_or_any(qkv, cos, sin, growth), d_mixed.contiguous(), d_qkv, d_growth)
        _backward[(b * heads // sizes["HEADS"],)](*tensors, **sizes)
    return d_qkv, d_growth


def _in_rows(qkv: Tensor, *others: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """As the kernels index them; as a rule they lie so already."""
    cos, sin, growth = (None if tensor is None else tensor.contiguous() for tensor in others)
    return qkv.contiguous(), cos, sin, growth


def _or_any(qkv: Tensor, *others: Tensor | None) -> tuple[Tensor, ...]:
    """With something to point at in place of what is not there, which the kernels do not read."""
    return qkv, *(qkv if tensor is None else tensor for tensor in others)


def _sizes(qkv: Tensor, cos: Tensor | None, growth: Tensor | None, heads: int) -> dict[str, Any]:
    """What both kernels are told about their tensors."""
    t, w3 = qkv.shape[1:]
    size = w3 // (3 * heads)
    block = max(16, triton.next_power_of_2(t))
    return {
        "tokens": t,
        "heads": heads,
        "scale": size**-0.5,
        "growth_stride": 0 if growth is None or len(growth) == 1 else growth.stride(0),
        "HALF": size // 2,
        "BLOCK": block,
        # two or eight one after the other, with shared angles, were not faster; without a loop at all both kernels
        # were slower, for Triton copies ahead of time in loops only
        "HEADS": 1,
        "TURNS": cos is not None,
        "GROWS": growth is not None,
        # in fp32 products are exact: which key is ahead must not hang on the last bits of tf32
        "PRECISION": "ieee" if qkv.dtype == torch.float32 else "tf32",
        "num_warps": 4,  # fastest for 50 and for 100 tokens
        "num_stages": 2,  # more would take the memory of other programs
    }


@short_attention.register_fake
def _(qkv: Tensor, cos: Tensor | None, sin: Tensor | None, growth: Tensor | None, heads: int) -> Tensor:
    b, t, w3 = qkv.shape
    return qkv.new_empty(b, t, w3 // 3)


@_short_attention_backward.register_fake
def _(
    d_mixed: Tensor, qkv: Tensor, cos: Tensor | None, sin: Tensor | None, growth: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    shape = (len(qkv), heads, qkv.shape[1]) if growth is not None else (0,)
    return torch.empty_like(qkv), qkv.new_empty(shape, dtype=torch.float32)


def _keep(ctx, inputs, output) -> None:
    *tensors, ctx.heads = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx, d_mixed):
    qkv, cos, sin, growth = ctx.saved_tensors
    d_qkv, d_growth = _short_attention_backward(d_mixed, qkv, cos, sin, growth, ctx.heads)
    if growth is not None:
        d_growth = d_growth.sum_to_size(growth.shape).to(growth.dtype)
    return d_qkv, None, None, None if growth is None else d_growth, None


short_attention.register_autograd(_differentiate, setup_context=_keep)
