"""Causal softmax attention in fp32 without gradients, for tests of long sequences on GPUs.

Torch's kernels multiply fp32 numbers without tensor cores.  Here each product is the sum of three products in tf32 of
the upper and lower parts of its factors, which is as exact as fp32 and several times faster.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from longreach.engine.kernels import on_its_device

FROM = 128
"""Tokens from which it is used: a program attends from so many."""
HEAD_SIZES = (16, 32, 64)
"""Larger heads do not fit into the registers of a program."""
_QUERIES, _KEYS = 128, 64


@triton.jit
def _attend(
    q,
    k,
    v,
    mixed,
    tokens,
    heads,
    scale,
    q_batch,
    q_head,
    q_token,
    k_batch,
    k_head,
    k_token,
    v_batch,
    v_head,
    v_token,
    SIZE: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Mix the values for a block of queries of a head, with a running maximum and sum of the weights."""
    batch, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    block = tl.num_programs(1) - 1 - tl.program_id(1)  # the longest rows begin first
    rows, dims = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, SIZE)
    far = rows.to(tl.int64)[:, None]
    k += batch * k_batch + head * k_head + tl.arange(0, KEYS)[:, None] * k_token + dims[None, :]
    v += batch * v_batch + head * v_head + tl.arange(0, KEYS)[:, None] * v_token + dims[None, :]
    inside = (rows < tokens)[:, None]
    place = q + batch * q_batch + head * q_head + far * q_token + dims[None, :]
    queries = tl.load(place, mask=inside, other=0.0) * scale
    largest = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    value = tl.zeros((QUERIES, SIZE), tl.float32)
    for start in range(0, tl.minimum((block + 1) * QUERIES, tokens), KEYS):
        columns = start + tl.arange(0, KEYS)
        seen = (columns < tokens)[:, None]
        keys, values = tl.load(k, mask=seen, other=0.0), tl.load(v, mask=seen, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="tf32x3")
        # padding comes after every real token, so that causality hides it too
        scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - now[:, None])
        shrink = tl.exp2(largest - now)
        total = total * shrink + tl.sum(weights, 1)
        value = tl.dot(weights, values, value * shrink[:, None], input_precision="tf32x3")
        largest = now
        k += KEYS * k_token
        v += KEYS * v_token
    place = mixed + ((batch * heads + head) * tokens + far) * SIZE + dims[None, :]
    tl.store(place, value / total[:, None], mask=inside)


def attend(
    q: Float[Tensor, "b h t d"], k: Float[Tensor, "b h t d"], v: Float[Tensor, "b h t d"]
) -> Float[Tensor, "b h t d"]:
    """Return the mixed values of causal attention."""
    b, heads, tokens, size = q.shape
    q, k, v = (part if part.stride(3) == 1 else part.contiguous() for part in (q, k, v))
    mixed = q.new_empty(q.shape)
    scale = size**-0.5 * math.log2(math.e)  # weights are powers of 2
    strides = [stride for part in (q, k, v) for stride in part.stride()[:3]]
    with on_its_device(q):
        _attend[(b * heads, triton.cdiv(tokens, _QUERIES))](
            q,
            k,
            v,
            mixed,
            tokens,
            heads,
            scale,
            *strides,
            SIZE=size,
            QUERIES=_QUERIES,
            KEYS=_KEYS,
            num_warps=8 if size > 32 else 4,
            num_stages=2,
        )
    return mixed


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether queries, keys and values are of a kind that this serves."""
    exact = q.dtype == k.dtype == v.dtype == torch.float32
    return exact and q.shape == k.shape and q.shape[2] >= FROM and not torch.is_grad_enabled()
