"""Layers as GPT-NeoX has them, in half precision on a GPU, with every step written out or fused.

Small models wait for memory and for launches more than for arithmetic: casts, sums, norms and the gradients of biases
take as long as the products.  Here each of them happens where the numbers are at hand anyway.  `Block` is the
reference that all of this is tested against, on a CPU through Triton's interpreter.
"""

from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.engine.fused.branches import branches, project, with_bias_gradient
from longreach.engine.fused.look_up import look_up
from longreach.engine.fused.norm import add_and_norm
from longreach.engine.fused.places import Choice, take_rows
from longreach.engine.parts import is_plain, is_watched
from longreach.model.block import Block, FeedForward, SelfAttention
from longreach.model.embedding import Entries

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
    return not is_watched(norm, *blocks.modules()) and all(
        type(block) is Block
        and type(block.attention) is SelfAttention
        and type(block.feed_forward) is FeedForward
        and block.parallel
        and block.feed_forward.gate is None
        and all(_has_bias(part, nn.LayerNorm) for part in (block.norm1, block.norm2, norm))
        and block.attention.out.in_features <= _WIDEST
        and all(_has_bias(part, nn.Linear) for part in _linears(block))
        for block in blocks
    )


def _has_bias(part: nn.Module, kind: type[nn.Module]) -> bool:
    return is_plain(part, kind) and part.bias is not None


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
    context: dict[str, Any],
    dtype: torch.dtype,
    result: torch.dtype,
) -> Float[Tensor, "b _ w"]:
    """All layers and the norm that follows; of the last, states at some places may be all that is wanted.  Products are
    in one precision, and the result is in another."""
    layers = cast(list[Block], list(blocks))
    begin, shape = (x.table, x.number.shape) if isinstance(x, Entries) else (x, x.shape[:2])
    stream = _Stream(begin.flatten(0, 1).contiguous())
    linears = [_linears(block) for block in layers]
    for number, (block, casts) in enumerate(zip(layers, _cast(linears, dtype), strict=True)):
        wanted = at if number == len(layers) - 1 else None
        told = {"layer": number, **context}
        if isinstance(x, Entries) and number == 0:
            parts = _first_layer(block, casts, x, stream, wanted, told)
        else:
            parts = _layer(block, casts, shape, stream, wanted, told)
        _, out, _, down = linears[number]
        stream = _Stream(*parts, (out.bias, down.bias))
    _, normed = add_and_norm(*stream, (norm,), result)
    return normed.view(shape[0], -1, normed.shape[1])


def _layer(
    block: Block, casts: _Casts, shape: torch.Size, stream: _Stream, at: Tensor | None, told: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """New states, but for what is added to them, and that."""
    states, normed1, normed2 = add_and_norm(*stream, (block.norm1, block.norm2), casts.qkv.dtype)
    qkv, out, up, down = _linears(block)
    projected = project(normed1, qkv.weight, casts.qkv, casts.qkv_bias).view(*shape, -1)
    mixed = block.attention.attend(projected, normed1.view(*shape, -1), qkv_bias=qkv.bias, **told).flatten(0, 1)
    if at is not None:
        chosen = _choose(at, shape)
        states, normed2, mixed = (take_rows(part, chosen) for part in (states, normed2, mixed))
    added = branches(mixed, normed2, (out.weight, up.weight, up.bias, down.weight), (casts.out, casts.up, casts.down))
    return states, added


def _first_layer(
    block: Block, casts: _Casts, read: Entries, vocabulary: _Stream, at: Tensor | None, told: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The same, as far as it can be for the vocabulary instead of every token, as in `model/by_token.py`."""
    models = len(read.table)

    def for_all(of_vocabulary: Tensor, number: Tensor) -> Tensor:
        return look_up(of_vocabulary.view(models, -1, of_vocabulary.shape[1]), number)

    shape = read.number.shape
    table, normed1, normed2 = add_and_norm(*vocabulary, (block.norm1, block.norm2), casts.qkv.dtype)
    qkv, out, up, down = _linears(block)
    projected = with_bias_gradient(project(normed1, qkv.weight, casts.qkv, casts.qkv_bias), qkv.bias)
    states = for_all(normed1, read.number).view(*shape, -1) if block.attention.mix.reads_states else None
    mixed = block.attention.attend(for_all(projected, read.number).view(*shape, -1), states, **told).flatten(0, 1)
    number = read.number
    if at is not None:
        mixed, number = take_rows(mixed, _choose(at, shape)), read.at(at).number
    net = branches(None, normed2, (None, up.weight, up.bias, down.weight), (None, casts.up, casts.down))
    return for_all(table + net, number), project(mixed, out.weight, casts.out, None)


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
