"""Queries and keys, taken out of the fused projection and turned, in one kernel."""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.fused.groups import PROGRAMS_PER_MULTIPROCESSOR, count_groups, sum_groups
from longreach.engine.kernels import on_its_device
from longreach.engine.second_stream import beside

_NUMBERS = 1024
"""In a block: of each half of a query or key."""


@triton.jit
def _turn(first, second, cos, sin):
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _rotary_forward(qkv, cos, sin, q, k, items, heads, HALF: tl.constexpr, ITEMS: tl.constexpr):
    """Of so many pairs of a token and a head."""
    item, dim = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS), tl.arange(0, HALF)[None, :]
    inside = (item < items)[:, None]
    item = item.to(tl.int64)
    angle, fused, own = (
        (item // heads)[:, None] * HALF + dim,
        item[:, None] * 6 * HALF + dim,
        item[:, None] * 2 * HALF + dim,
    )
    c, s = tl.load(cos + angle, mask=inside, other=0.0), tl.load(sin + angle, mask=inside, other=0.0)
    q1 = tl.load(qkv + fused, mask=inside, other=0.0).to(tl.float32)
    q2 = tl.load(qkv + fused + HALF, mask=inside, other=0.0).to(tl.float32)
    q1, q2 = _turn(q1, q2, c, s)
    tl.store(q + own, q1, mask=inside)
    tl.store(q + own + HALF, q2, mask=inside)
    k1 = tl.load(qkv + fused + 2 * HALF, mask=inside, other=0.0).to(tl.float32)
    k2 = tl.load(qkv + fused + 3 * HALF, mask=inside, other=0.0).to(tl.float32)
    k1, k2 = _turn(k1, k2, c, s)
    tl.store(k + own, k1, mask=inside)
    tl.store(k + own + HALF, k2, mask=inside)


@triton.jit
def _rotary_backward(
    d_q,
    d_k,
    d_v,
    cos,
    sin,
    d_qkv,
    sums,
    tokens,
    heads,
    tokens_in_group,
    SUMS: tl.constexpr,
    HALF: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Of a head and a group of a model's tokens, with the sums of the group where they are wanted."""
    group, head, model = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    dim = tl.arange(0, HALF)
    sum_q1 = tl.zeros((TOKENS, HALF), tl.float32)
    sum_q2, sum_k1, sum_k2, sum_v1, sum_v2 = sum_q1, sum_q1, sum_q1, sum_q1, sum_q1
    end = tl.minimum(tokens, (group + 1) * tokens_in_group)
    for start in range(group * tokens_in_group, end, TOKENS):
        token = start + tl.arange(0, TOKENS)
        inside = (token < end)[:, None]
        token = (model * tokens + token)[:, None]
        own, fused = (token * heads + head) * 2 * HALF + dim[None, :], (token * heads + head) * 6 * HALF + dim[None, :]
        c = tl.load(cos + token * HALF + dim[None, :], mask=inside, other=0.0)
        s = -tl.load(sin + token * HALF + dim[None, :], mask=inside, other=0.0)
        q1 = tl.load(d_q + own, mask=inside, other=0.0).to(tl.float32)
        q2 = tl.load(d_q + own + HALF, mask=inside, other=0.0).to(tl.float32)
        q1, q2 = _turn(q1, q2, c, s)
        tl.store(d_qkv + fused, q1, mask=inside)
        tl.store(d_qkv + fused + HALF, q2, mask=inside)
        k1 = tl.load(d_k + own, mask=inside, other=0.0).to(tl.float32)
        k2 = tl.load(d_k + own + HALF, mask=inside, other=0.0).to(tl.float32)
        k1, k2 = _turn(k1, k2, c, s)
        tl.store(d_qkv + fused + 2 * HALF, k1, mask=inside)
        tl.store(d_qkv + fused + 3 * HALF, k2, mask=inside)
        v1 = tl.load(d_v + own, mask=inside, other=0.0).to(tl.float32)
        v2 = tl.load(d_v + own + HALF, mask=inside, other=0.0).to(tl.float32)
        tl.store(d_qkv + fused + 4 * HALF, v1, mask=inside)
        tl.store(d_qkv + fused + 5 * HALF, v2, mask=inside)
        sum_q1 += q1
        sum_q2 += q2
        sum_k1 += k1
        sum_k2 += k2
        sum_v1 += v1
        sum_v2 += v2
    if SUMS:
        sums += ((model * tl.num_programs(0) + group) * heads + head) * 6 * HALF + dim
        tl.store(sums, tl.sum(sum_q1, 0))
        tl.store(sums + HALF, tl.sum(sum_q2, 0))
        tl.store(sums + 2 * HALF, tl.sum(sum_k1, 0))
        tl.store(sums + 3 * HALF, tl.sum(sum_k2, 0))
        tl.store(sums + 4 * HALF, tl.sum(sum_v1, 0))
        tl.store(sums + 5 * HALF, tl.sum(sum_v2, 0))


class _TurnApart(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, bias: Tensor | None, heads: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        b, t, w3 = qkv.shape
        size = w3 // (3 * heads)
        q, k = (qkv.new_empty(b, t, heads, size) for _ in range(2))
        items, block = b * t * heads, 2 * _NUMBERS // size
        with on_its_device(qkv):
            _rotary_forward[(triton.cdiv(items, block),)](
                qkv, cos, sin, q, k, items, heads, HALF=size // 2, ITEMS=block
            )
        ctx.save_for_backward(cos, sin)
        ctx.bias = None if bias is None else bias.shape
        v = qkv.view(b, t, heads, 3, size)[:, :, :, 2]
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_q, d_k, d_v = (gradient.transpose(1, 2).contiguous() for gradient in gradients)
        b, t, heads, size = d_q.shape
        d_qkv = d_q.new_empty(b, t, 3 * heads * size)
        models = 1 if ctx.bias is None or len(ctx.bias) == 1 else ctx.bias[0]
        tokens, block = b * t // models, 2 * _NUMBERS // size
        groups = count_groups(d_q, tokens, block, PROGRAMS_PER_MULTIPROCESSOR, others=heads * models)
        sums = d_q.new_empty(models, groups, 3 * heads * size, dtype=torch.float32)
        with on_its_device(d_q):
            _rotary_backward[(groups, heads, models)](
                d_q,
                d_k,
                d_v,
                *ctx.saved_tensors,
                d_qkv,
                sums,
                tokens,
                heads,
                triton.cdiv(tokens, groups),
                SUMS=ctx.bias is not None,
                HALF=size // 2,
                TOKENS=block,
            )
        d_bias = None if ctx.bias is None else beside(sum_groups, sums).view(ctx.bias)
        return d_qkv, None, None, d_bias, None


def turn_apart(qkv: Tensor, cos: Tensor, sin: Tensor, bias: Tensor | None, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [b, h, t, d] of a projection [b, t, 3w] laid out per head as query, key, value.

    `cos` and `sin` [b, t, d/2] turn all dimensions of queries and keys, the first half against the second.  `bias`, of
    one model or of each of the stacked ones, is in the projection already: it is given where its gradient is wanted.
    """
    found: tuple[Tensor, Tensor, Tensor] = _TurnApart.apply(
        qkv.contiguous(), cos.contiguous(), sin.contiguous(), bias, heads
    )
    return found
