"""Layers in half precision on a GPU, with every step written out or fused.

Small models wait for memory and for launches more than for arithmetic: casts, sums, norms and the gradients of biases
take as long as the products.  Here each of them happens where the numbers are at hand anyway.  Attention and
feed-forward net are parallel (GPT-NeoX) or sequential (Llama).  `Block` is the reference that all of this is tested
against, on a CPU through Triton's interpreter.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.engine.by_token import Entries
from longreach.engine.fused.branches import branches, project, with_bias_gradient
from longreach.engine.fused.casts import Casts, cast_weights
from longreach.engine.fused.look_up import look_up
from longreach.engine.fused.norm import add_and_norm
from longreach.engine.fused.places import Choice, take_rows
from longreach.model.block import Block, LayerInputs

if TYPE_CHECKING:
    from longreach.engine.layers import FastAttention

WIDEST = 4096
"""The widest states: a program holds a row of them."""


class _Stream(NamedTuple):
    """States [rows, width] and the output of the last branches, which the next norm adds to them."""

    states: Tensor
    added: Tensor | None = None
    biases: tuple[Tensor, ...] = ()


def run_fused(
    blocks: nn.ModuleList,
    norm: nn.Module,
    x: Float[Tensor, "b t w"] | Entries,
    at: Int[Tensor, "b a"] | None,
    inputs: LayerInputs,
    dtype: torch.dtype,
    result: torch.dtype,
    reads_states: bool,
    in_products: bool = True,
) -> Float[Tensor, "b _ w"]:
    """Apply all layers and the norm that follows; with `at`, the last layer to states at some places only.

    Products are in the precision `dtype`, the result is in `result`.  `reads_states` if attention rescales its scores.
    With `in_products`, GELU is computed inside the kernels of the products.
    """
    layers = cast(list[Block], list(blocks))
    begin, shape = (x.table, x.number.shape) if isinstance(x, Entries) else (x, x.shape[:2])
    stream = _Stream(begin.flatten(0, 1).contiguous())
    for number, (block, casts) in enumerate(zip(layers, cast_weights(layers, dtype), strict=True)):
        wanted = at if number == len(layers) - 1 else None
        if isinstance(x, Entries) and number == 0:
            stream = _first_layer(block, casts, x, stream, wanted, inputs, reads_states, in_products)
        else:
            stream = _layer(block, casts, shape, stream, wanted, inputs, number, in_products)
    _, normed = add_and_norm(*stream, (norm,), result)
    return normed.view(shape[0], -1, normed.shape[1])


def _layer(
    block: Block,
    casts: Casts,
    shape: torch.Size,
    stream: _Stream,
    at: Tensor | None,
    inputs: LayerInputs,
    layer: int,
    in_products: bool,
) -> _Stream:
    """Apply a layer; the next norm adds its last branches."""
    states, normed1, *for_net = add_and_norm(*stream, _first_norms(block), casts.qkv.dtype)
    qkv, attention = block.attention.qkv, cast("FastAttention", block.attention)
    # the product of a stack adds no bias: the kernel of attention adds it while it reads
    later = qkv.weight.dim() == 3 and attention.is_short(shape[1], casts.qkv.dtype, inputs)
    projected = project(normed1, qkv.weight, casts.qkv, None if later else casts.qkv_bias).view(*shape, -1)
    missing = casts.qkv_bias if later else None
    mixed = attention.attend(projected, normed1.view(*shape, -1), inputs, layer, qkv.bias, missing).flatten(0, 1)
    if at is not None:
        chosen = _choose(at, shape)
        states, *for_net, mixed = (take_rows(part, chosen) for part in (states, *for_net, mixed))
    if not block.parallel:
        return _net_after(block, casts, states, mixed, in_products)
    added = branches(mixed, for_net[0], block, casts, in_products)
    return _Stream(states, added, _biases(block.attention.out, block.feed_forward.out))


def _first_layer(
    block: Block,
    casts: Casts,
    read: Entries,
    vocabulary: _Stream,
    at: Tensor | None,
    inputs: LayerInputs,
    reads_states: bool,
    in_products: bool,
) -> _Stream:
    """Compute as `_layer` does, for the vocabulary instead of every token where that is enough, as in `by_token.py`."""
    models = len(read.table)

    def for_all(of_vocabulary: Tensor, number: Tensor) -> Tensor:
        return look_up(of_vocabulary.view(models, -1, of_vocabulary.shape[1]), number)

    shape = read.number.shape
    table, normed1, *for_net = add_and_norm(*vocabulary, _first_norms(block), casts.qkv.dtype)
    qkv = block.attention.qkv
    projected = with_bias_gradient(project(normed1, qkv.weight, casts.qkv, casts.qkv_bias), qkv.bias)
    states = for_all(normed1, read.number).view(*shape, -1) if reads_states else None
    attention = cast("FastAttention", block.attention)
    mixed = attention.attend(for_all(projected, read.number).view(*shape, -1), states, inputs, 0).flatten(0, 1)
    number = read.number
    if at is not None:
        mixed, number = take_rows(mixed, _choose(at, shape)), read.at(at).number
    if not block.parallel:
        return _net_after(block, casts, for_all(table, number), mixed, in_products)
    net = branches(None, for_net[0], block, casts, in_products)
    attended = project(mixed, block.attention.out.weight, casts.out, None)
    return _Stream(for_all(table + net, number), attended, _biases(block.attention.out, block.feed_forward.out))


def _net_after(block: Block, casts: Casts, states: Tensor, mixed: Tensor, in_products: bool) -> _Stream:
    """Add the output of attention to states, then apply the feed-forward net of a sequential layer."""
    out, down = block.attention.out, block.feed_forward.out
    attended = project(mixed, out.weight, casts.out, None)
    states, normed = add_and_norm(states, attended, _biases(out), (block.norm2,), casts.qkv.dtype)
    return _Stream(states, branches(None, normed, block, casts, in_products), _biases(down))


def _first_norms(block: Block) -> tuple[nn.Module, ...]:
    """Return the norms of the states that a layer begins with."""
    return (block.norm1, block.norm2) if block.parallel else (block.norm1,)


def _biases(*maps: nn.Linear) -> tuple[Tensor, ...]:
    """Return the biases of maps that have one."""
    return tuple(part.bias for part in maps if part.bias is not None)


def _choose(at: Int[Tensor, "b a"], shape: torch.Size) -> Choice:
    """Places of each sequence as rows among all."""
    return Choice.of((at + shape[1] * torch.arange(shape[0], device=at.device)[:, None]).flatten(), shape.numel())
