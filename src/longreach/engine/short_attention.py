"""Softmax attention over short sequences in one kernel, for GPUs.

Kernels made for long sequences waste most of their work on fifty tokens.  Normalizing and rotating queries and keys,
taking heads apart and putting them together again move more bytes than attention itself.  Here one program computes a
head of a sequence, from the fused projection to the mixed values, and reads and writes each number once.  The backward
pass computes the weights again.

`SelfAttention` is the reference that it is tested against, on a CPU through Triton's interpreter.
"""

# kernels are not annotated: Triton reads their source, and mypy cannot
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from longreach.engine.fused.groups import sum_groups
from longreach.engine.kernels import on_its_device
from longreach.engine.short_attention_kernels import attention_backward, attention_forward

LARGEST_HEAD = 128
"""The most dimensions of a head."""


def most_tokens(dtype: torch.dtype) -> int:
    """Return the longest sequence for which a program is faster than torch's kernels.  Exact fp32 has no tensor
    cores, so that it soon is not.  A head may have as many dimensions."""
    return 64 if dtype == torch.float32 else 128


@dataclass(frozen=True)
class Extras:
    """Parts of attention that a model may lack; weights have the model in front, also where there is only one."""

    qkv_bias: Tensor | None = None
    """A bias [models, 3w] that the projection does not contain yet.  It gets no gradient here."""
    norm_q: Tensor | None = None
    """Weights [models, d] of the RMS norm of queries."""
    norm_k: Tensor | None = None
    """Weights [models, d] of the RMS norm of keys."""
    eps: float = 0.0
    """Added to the mean square in these norms."""
    id_q: Tensor | None = None
    """Queries [models, n, d] of the first n heads, in place of the projected ones."""
    id_k: Tensor | None = None
    """Keys [models, n, d] of the first n heads, in place of the projected ones."""
    ids: Tensor | None = None
    """Position IDs [b, levels, t] in int32, compared by the first heads, which take the levels in turn."""
    comparing: int = 0
    """The number of heads that see only tokens with an equal ID; ID 0 sees the first token."""


@torch.library.custom_op("longreach::short_attention", mutates_args=())
def _short_attention(
    qkv: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    growth: Tensor | None,
    bias: Tensor | None,
    norm_q: Tensor | None,
    norm_k: Tensor | None,
    id_q: Tensor | None,
    id_k: Tensor | None,
    ids: Tensor | None,
    heads: int,
    eps: float,
    comparing: int,
) -> Tensor:
    tensors = _contiguous(qkv, cos, sin, growth, bias, norm_q, norm_k, id_q, id_k, ids)
    b, t, w3 = qkv.shape
    mixed = qkv.new_empty(b, t, w3 // 3)
    with on_its_device(qkv):
        attention_forward[(b * heads,)](*_or_any(tensors), mixed, **_sizes(tensors, heads, eps, comparing))
    return mixed


@torch.library.custom_op("longreach::short_attention_backward", mutates_args=())
def _short_attention_backward(
    d_mixed: Tensor,
    qkv: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    growth: Tensor | None,
    bias: Tensor | None,
    norm_q: Tensor | None,
    norm_k: Tensor | None,
    id_q: Tensor | None,
    id_k: Tensor | None,
    ids: Tensor | None,
    heads: int,
    eps: float,
    comparing: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the projection and of growth, and sums over the tokens of each head of each sequence."""
    tensors = _contiguous(qkv, cos, sin, growth, bias, norm_q, norm_k, id_q, id_k, ids)
    d_qkv, d_growth, sums = _gradients(qkv, growth, norm_q, id_q, heads)
    with on_its_device(qkv):
        attention_backward[(len(qkv) * heads,)](
            *_or_any(tensors), d_mixed.contiguous(), d_qkv, d_growth, sums, **_sizes(tensors, heads, eps, comparing)
        )
    return d_qkv, d_growth, sums


def _gradients(
    qkv: Tensor, growth: Tensor | None, norm_q: Tensor | None, id_q: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return places for the results of the backward pass; those that are not needed are empty."""
    b, t, w3 = qkv.shape
    summed = (b, heads, 4, w3 // (3 * heads)) if norm_q is not None or id_q is not None else (0,)
    of_growth = (b, heads, t) if growth is not None else (0,)
    new = qkv.new_empty
    return new(qkv.shape), new(of_growth, dtype=torch.float32), new(summed, dtype=torch.float32)


def _contiguous(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Lay tensors out as the kernels index them; as a rule they are."""
    return tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)


def _or_any(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Replace missing tensors, which the kernels do not read, by another one that has an address."""
    return tuple(tensors[0] if tensor is None else tensor for tensor in tensors)


def _sizes(tensors: tuple[Tensor | None, ...], heads: int, eps: float, comparing: int) -> dict[str, Any]:
    """Return the scalar and compile-time arguments of both kernels."""
    qkv, cos, _, growth, bias, norm_q, _, id_q, _, ids = tensors
    assert qkv is not None
    b, t, w3 = qkv.shape
    size = w3 // (3 * heads)
    block = max(16, triton.next_power_of_2(t))
    models = next((len(weights) for weights in (bias, norm_q, id_q) if weights is not None), 1)
    return {
        "tokens": t,
        "heads": heads,
        "scale": size**-0.5,
        "growth_stride": 0 if growth is None or len(growth) == 1 else growth.stride(0),
        "eps": eps,
        "rows_of_model": b // models,
        "fixed": 0 if id_q is None else id_q.shape[1],
        "levels": 1 if ids is None else ids.shape[1],
        "comparing": comparing,
        "HALF": size // 2,
        "SIZE": max(16, triton.next_power_of_2(size // 2)),
        "PAIRS": size // 2 if cos is None else cos.shape[-1],
        "WHOLE": max(16, triton.next_power_of_2(size)),
        "BLOCK": block,
        "TURNS": cos is not None,
        "GROWS": growth is not None,
        "BIASED": bias is not None,
        "NORMED": norm_q is not None,
        "CONSTANT": id_q is not None,
        "COMPARES": ids is not None,
        # in fp32 products are exact: which key is ahead must not depend on the last bits of tf32
        "PRECISION": "ieee" if qkv.dtype == torch.float32 else "tf32",
        "num_warps": 8 if block == 128 and size >= 64 else 4,  # as measured: twice as many double the time elsewhere
        "num_stages": 2,  # more would take the memory of other programs
    }


@_short_attention.register_fake
def _(qkv: Tensor, *others: Any) -> Tensor:
    b, t, w3 = qkv.shape
    return qkv.new_empty(b, t, w3 // 3)


@_short_attention_backward.register_fake
def _(d_mixed: Tensor, qkv: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, _, growth, _, norm_q, _, id_q, _, _, heads, _, _ = others
    return _gradients(qkv, growth, norm_q, id_q, heads)


def _keep(ctx, inputs, output) -> None:
    *tensors, ctx.heads, ctx.eps, ctx.comparing = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx, d_mixed):
    tensors = ctx.saved_tensors
    growth, norm_q, id_q = tensors[3], tensors[5], tensors[7]
    d_qkv, d_growth, sums = _short_attention_backward(d_mixed, *tensors, ctx.heads, ctx.eps, ctx.comparing)
    d_growth = None if growth is None else d_growth.sum_to_size(growth.shape).to(growth.dtype)
    d_norms: tuple[Any, ...] = (None, None)
    d_ids: tuple[Any, ...] = (None, None)
    if norm_q is not None:
        models, size = norm_q.shape
        d_norms = sum_groups(sums.view(models, -1, 4, size)).view(models, 4, size)[:, :2].unbind(1)
    if id_q is not None:
        models, fixed, size = id_q.shape
        d_ids = sums.view(models, -1, ctx.heads, 4, size)[:, :, :fixed, 2:].sum(1).unbind(2)
    return d_qkv, None, None, d_growth, None, *d_norms, *d_ids, None, None, None, None


_short_attention.register_autograd(_differentiate, setup_context=_keep)


def short_attention(
    qkv: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    growth: Tensor | None,
    heads: int,
    extras: Extras = Extras(),
) -> Tensor:
    """Return the mixed values [b, t, w] of causal attention over the fused projection [b, t, 3w].

    The projection holds query, key and value of each head in turn.  `cos` and `sin` [b, t, pairs] rotate queries and
    keys; `growth` [b or 1, heads, t] multiplies the scores of each query.
    """
    own = extras
    mixed: Tensor = _short_attention(
        qkv,
        cos,
        sin,
        growth,
        own.qkv_bias,
        own.norm_q,
        own.norm_k,
        own.id_q,
        own.id_k,
        own.ids,
        heads,
        own.eps,
        own.comparing,
    )
    return mixed
