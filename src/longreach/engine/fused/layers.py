"""Layers as GPT-NeoX has them, in half precision on a GPU, with every step written out or fused.

Small models wait for memory and for launches more than for arithmetic: casts, sums, norms and the gradients of biases
take as long as the products.  Here each of them happens where the numbers are at hand anyway.  `Block` is the
reference that all of this is tested against, on a CPU through Triton's interpreter.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.engine.by_token import Entries
from longreach.engine.fused.branches import branches, project, with_bias_gradient
from longreach.engine.fused.look_up import look_up
from longreach.engine.fused.norm import add_and_norm
from longreach.engine.fused.places import Choice, take_rows
from longreach.model.block import Block, LayerInputs

if TYPE_CHECKING:
    from longreach.engine.layers import FastAttention

WIDEST = 4096
"""The widest states: a program holds a row of them."""


class _Casts(NamedTuple):
    """The weights of a layer in the precision of its products."""

    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    up: Tensor
    down: Tensor


def _linears(block: Block) -> tuple[nn.Linear, ...]:
    return block.attention.qkv, block.attention.out, block.feed_forward.up, block.feed_forward.out


class _Stream(NamedTuple):
    """States [rows, width], and what a layer adds to them: whoever reads them next can add it on the way."""

    states: Tensor
    added: Tensor | None = None
    biases: tuple[Tensor, Tensor] | None = None


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
    linears = [_linears(block) for block in layers]
    for number, (block, casts) in enumerate(zip(layers, _cast(linears, dtype), strict=True)):
        wanted = at if number == len(layers) - 1 else None
        if isinstance(x, Entries) and number == 0:
            parts = _first_layer(block, casts, x, stream, wanted, inputs, reads_states, in_products)
        else:
            parts = _layer(block, casts, shape, stream, wanted, inputs, number, in_products)
        _, out, _, down = linears[number]
        stream = _Stream(*parts, (out.bias, down.bias))
    _, normed = add_and_norm(*stream, (norm,), result)
    return normed.view(shape[0], -1, normed.shape[1])


def _layer(
    block: Block,
    casts: _Casts,
    shape: torch.Size,
    stream: _Stream,
    at: Tensor | None,
    inputs: LayerInputs,
    layer: int,
    in_products: bool,
) -> tuple[Tensor, Tensor]:
    """Return new states without what the layer adds to them, and what it adds."""
    states, normed1, normed2 = add_and_norm(*stream, (block.norm1, block.norm2), casts.qkv.dtype)
    qkv, out, up, down = _linears(block)
    projected = project(normed1, qkv.weight, casts.qkv, casts.qkv_bias).view(*shape, -1)
    mixed = _attend(block, projected, normed1.view(*shape, -1), inputs, layer, qkv.bias)
    if at is not None:
        chosen = _choose(at, shape)
        states, normed2, mixed = (take_rows(part, chosen) for part in (states, normed2, mixed))
    weights, halves = (out.weight, up.weight, up.bias, down.weight), (casts.out, casts.up, casts.down)
    return states, branches(mixed, normed2, weights, halves, in_products)


def _first_layer(
    block: Block,
    casts: _Casts,
    read: Entries,
    vocabulary: _Stream,
    at: Tensor | None,
    inputs: LayerInputs,
    reads_states: bool,
    in_products: bool,
) -> tuple[Tensor, Tensor]:
    """Compute as `_layer` does, for the vocabulary instead of every token where that is enough, as in `by_token.py`."""
    models = len(read.table)

    def for_all(of_vocabulary: Tensor, number: Tensor) -> Tensor:
        return look_up(of_vocabulary.view(models, -1, of_vocabulary.shape[1]), number)

    shape = read.number.shape
    table, normed1, normed2 = add_and_norm(*vocabulary, (block.norm1, block.norm2), casts.qkv.dtype)
    qkv, out, up, down = _linears(block)
    projected = with_bias_gradient(project(normed1, qkv.weight, casts.qkv, casts.qkv_bias), qkv.bias)
    states = for_all(normed1, read.number).view(*shape, -1) if reads_states else None
    mixed = _attend(block, for_all(projected, read.number).view(*shape, -1), states, inputs, 0, None)
    number = read.number
    if at is not None:
        mixed, number = take_rows(mixed, _choose(at, shape)), read.at(at).number
    weights, halves = (None, up.weight, up.bias, down.weight), (None, casts.up, casts.down)
    net = branches(None, normed2, weights, halves, in_products)
    return for_all(table + net, number), project(mixed, out.weight, casts.out, None)


def _attend(
    block: Block, qkv: Tensor, states: Tensor | None, inputs: LayerInputs, layer: int, bias: Tensor | None
) -> Tensor:
    """Return the mixed values [rows, width]."""
    attention = cast("FastAttention", block.attention)
    return attention.attend(qkv, states, inputs, layer, bias).flatten(0, 1)


def _choose(at: Int[Tensor, "b a"], shape: torch.Size) -> Choice:
    """Places of each sequence as rows among all."""
    return Choice.of((at + shape[1] * torch.arange(shape[0], device=at.device)[:, None]).flatten(), shape.numel())


@torch.no_grad()
def _cast(linears: list[tuple[nn.Linear, ...]], dtype: torch.dtype) -> list[_Casts]:
    """All weights in few launches."""
    weights: list[Tensor] = []
    for qkv, out, up, down in linears:
        weights += [qkv.weight, qkv.bias, out.weight, up.weight, down.weight]
    casts = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    torch._foreach_copy_(casts, weights)
    size = len(_Casts._fields)
    return [_Casts(*casts[start : start + size]) for start in range(0, len(casts), size)]
