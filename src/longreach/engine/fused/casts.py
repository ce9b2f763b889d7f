"""The weights of layers in the precision of their products."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from longreach.model.block import Block


class Casts(NamedTuple):
    """The weights of a layer in half precision.  `up` holds those of gates and ups below each other."""

    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    up: Tensor
    down: Tensor


def hidden_maps(block: Block) -> tuple[nn.Linear, ...]:
    """Return the maps to the hidden units: the gate if any, and up."""
    net = block.feed_forward
    return (net.up,) if net.gate is None else (net.gate, net.up)


@torch.no_grad()
def cast_weights(blocks: list[Block], dtype: torch.dtype) -> list[Casts]:
    """Cast the weights of all layers in few launches."""
    weights: list[Tensor] = []
    casts: list[Tensor] = []
    found = []
    for block in blocks:
        qkv, maps = block.attention.qkv, hidden_maps(block)
        own = [qkv.weight, block.attention.out.weight, block.feed_forward.out.weight]
        own += [] if qkv.bias is None else [qkv.bias]
        made = [torch.empty_like(weight, dtype=dtype) for weight in own]
        up = maps[0].weight.new_empty(len(maps), *maps[0].weight.shape, dtype=dtype)
        weights += [*own, *(part.weight for part in maps)]
        casts += [*made, *up.unbind()]
        found.append((up, *made))
    torch._foreach_copy_(casts, weights)
    # each stacked model has its gates and ups below each other: a copy, and a view of one model
    return [
        Casts(qkv, bias[0] if bias else None, out, up.movedim(0, -3).flatten(-3, -2), down)
        for up, qkv, out, down, *bias in found
    ]
