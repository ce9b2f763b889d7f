"""Layers as GPT-NeoX has them, in half precision on a GPU, with every step written out or fused.

Small models wait for memory and for launches more than for arithmetic: casts, sums, norms and the gradients of biases
take as long as the products.  Here each of them happens where the numbers are at hand anyway.  `Block` is the
reference that all of this is tested against, on a CPU through Triton's interpreter.
"""

from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from longreach.model.block import Block, FeedForward, SelfAttention
from longreach.model.fused.branches import branches, project
from longreach.model.fused.norm import add_and_norm
from longreach.model.fused.places import take_rows

_WIDEST = 4096
"""Of states that a program holds a row of."""


class _Casts(NamedTuple):
    """The weights of a layer in the precision of its products."""

    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    up: Tensor
    down: Tensor


def fits(blocks: nn.ModuleList, norm: nn.Module) -> bool:
    """Whether layers are of the kind that is written out here, and nobody watches or replaces a part of them."""
    if _has_any_global_hook() or _is_watched(norm):  # type: ignore[no-untyped-call]
        return False
    return all(
        type(block) is Block
        and type(block.attention) is SelfAttention
        and type(block.feed_forward) is FeedForward
        and block.parallel
        and block.feed_forward.gate is None
        and all(_is_plain(part, nn.LayerNorm) for part in (block.norm1, block.norm2, norm))
        and block.attention.out.in_features <= _WIDEST
        and all(_is_plain(part, nn.Linear) for part in _linears(block))
        and not any(_is_watched(module) for module in block.modules())
        for block in blocks
    )


def _is_plain(part: nn.Module, kind: type[nn.Module]) -> bool:
    """One of torch's own parts, or one for each of the stacked models, with a bias."""
    if not isinstance(part, kind) or part.bias is None:
        return False
    assert isinstance(part.weight, Tensor)
    return type(part) is kind or part.weight.dim() == (3 if kind is nn.Linear else 2)


def _is_watched(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


def _linears(block: Block) -> tuple[nn.Linear, nn.Linear, nn.Linear, nn.Linear]:
    return block.attention.qkv, block.attention.out, block.feed_forward.up, block.feed_forward.out


def run_fused(
    blocks: nn.ModuleList,
    norm: nn.Module,
    x: Float[Tensor, "b t w"],
    at: Int[Tensor, "b a"] | None,
    context: dict[str, Any],
    dtype: torch.dtype,
) -> Float[Tensor, "b _ w"]:
    """All layers and the norm that follows; of the last, states at some places may be all that is wanted."""
    layers = cast(list[Block], list(blocks))
    b, t, w = x.shape
    states, added, added_bias = x.flatten(0, 1).contiguous(), None, None
    for number, (block, casts) in enumerate(zip(layers, _cast(layers, dtype), strict=True)):
        states, normed1, normed2 = add_and_norm(states, added, added_bias, (block.norm1, block.norm2), dtype)
        qkv, out, up, down = _linears(block)
        projected = project(normed1, qkv.weight, casts.qkv, casts.qkv_bias).view(b, t, -1)
        mixed = block.attention.attend(projected, normed1.view(b, t, w), layer=number, qkv_bias=qkv.bias, **context)
        mixed = mixed.reshape(-1, w)
        if at is not None and number == len(layers) - 1:
            rows = (at + t * torch.arange(b, device=at.device)[:, None]).flatten()
            states, normed2, mixed = (take_rows(part, rows) for part in (states, normed2, mixed))
        added = branches(
            mixed,
            normed2,
            (out.weight, up.weight, up.bias, down.weight),
            (casts.out, casts.up, casts.down),
        )
        added_bias = out.bias + down.bias
    _, normed = add_and_norm(states, added, added_bias, (norm,), x.dtype)
    return normed.view(b, -1, w)


@torch.no_grad()
def _cast(blocks: list[Block], dtype: torch.dtype) -> list[_Casts]:
    """All weights in few launches."""
    weights = []
    for block in blocks:
        qkv, out, up, down = _linears(block)
        weights += [qkv.weight, qkv.bias, out.weight, up.weight, down.weight]
    casts = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    torch._foreach_copy_(casts, weights)
    size = len(_Casts._fields)
    return [_Casts(*casts[start : start + size]) for start in range(0, len(casts), size)]
