"""The products of a layer with their gradients, written out.

Weights come twice: as they are trained, in fp32, and as they are multiplied with, in half precision.  Gradients of
weights are added up in fp32 and stay so, and what autograd would cast, copy and sum on the way is left out.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.fused import gelu_products
from longreach.engine.fused.casts import Casts, hidden_maps
from longreach.engine.fused.gate import gate_backward, gate_units
from longreach.engine.fused.gelu import gelu_and_slopes, gelu_backward
from longreach.engine.fused.groups import sum_rows
from longreach.engine.fused.products import add_times, affine, backward, times, weight_gradient
from longreach.engine.second_stream import beside
from longreach.model.block import Block


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cast: Tensor, cast_bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, cast)
        return times(x, cast) if cast_bias is None else affine(x, cast, cast_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, cast = ctx.saved_tensors
        d_out = gradients[0].contiguous()
        return backward(d_out, cast), beside(weight_gradient, d_out, x, cast), None, None


class _WithBiasGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, bias: Tensor) -> Tensor:
        ctx.bias = bias.shape
        return projected.view_as(projected)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        d_out, width = gradients[0].contiguous(), ctx.bias[-1]
        d_bias = beside(sum_rows, d_out.view(-1, width), ctx.bias.numel() // width)
        return d_out, d_bias.view(ctx.bias)


class _Branches(torch.autograd.Function):
    """Computes the net and adds it to the output of attention if any.  `maps` are the weights of the hidden units, then
    their biases if any."""

    @staticmethod
    def forward(
        ctx: Any,
        mixed: Tensor | None,
        normed: Tensor,
        cast_out: Tensor | None,
        cast_up: Tensor,
        cast_down: Tensor,
        gated: bool,
        learns: bool,
        in_products: bool,
        out: Tensor | None,
        down: Tensor,
        *maps: Tensor,
    ) -> Tensor:
        ctx.gated, ctx.in_products = gated, in_products
        biases = maps[1 + gated :]
        bias = biases[0] if biases else None
        kept: Tensor | None
        if gated:
            kept = times(normed, cast_up)
            hidden = gate_units(kept, biases)
        elif in_products and gelu_products.fits(normed, cast_up):
            hidden, kept = gelu_products.gelu_of_product(normed, cast_up, bias, with_slopes=learns)
        else:
            hidden, kept = gelu_and_slopes(times(normed, cast_up), bias, with_slopes=learns)
        ctx.save_for_backward(mixed, normed, kept, hidden, cast_out, cast_up, cast_down, *biases)
        if mixed is None or cast_out is None:
            return times(hidden, cast_down)
        return add_times(times(mixed, cast_out), hidden, cast_down)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mixed, normed, kept, hidden, cast_out, cast_up, cast_down, *biases = ctx.saved_tensors
        d_added = gradients[0].contiguous()
        bias = biases[0] if biases else None
        d_biases: tuple[Tensor | None, ...]
        if ctx.gated:
            d_units, d_biases = gate_backward(backward(d_added, cast_down), kept, biases)
        elif ctx.in_products and gelu_products.fits(d_added, cast_down):
            d_units, d_bias = gelu_products.backward_of_product(d_added, cast_down, kept, bias)
            d_biases = (d_bias,)
        else:
            d_units, d_bias = gelu_backward(backward(d_added, cast_down), kept, bias)
            d_biases = (d_bias,)
        alone = mixed is None
        d_mixed, d_normed = None if alone else backward(d_added, cast_out), backward(d_units, cast_up)
        # last: what others wait for is begun before
        d_out = None if alone else beside(weight_gradient, d_added, mixed, cast_out)
        d_maps = beside(_gradients_of_maps, d_units, normed, cast_up, 1 + ctx.gated)
        d_down = beside(weight_gradient, d_added, hidden, cast_down)
        return d_mixed, d_normed, *[None] * 6, d_out, d_down, *d_maps, *d_biases[: len(biases)]


def _gradients_of_maps(d_units: Tensor, x: Tensor, weight: Tensor, count: int) -> tuple[Tensor, ...]:
    """Return the gradients of the maps whose weights lie below each other in `weight`."""
    return tuple(part.contiguous() for part in weight_gradient(d_units, x, weight).chunk(count, -2))


def project(x: Tensor, weight: Tensor, cast: Tensor, cast_bias: Tensor | None) -> Tensor:
    """Apply a linear map to x [rows, width].

    Its bias gets no gradient here: the function that computes the gradient of the result can sum it on the way.
    """
    found: Tensor = _Project.apply(x, weight, cast, cast_bias)  # type: ignore[no-untyped-call]
    return found


def with_bias_gradient(projected: Tensor, bias: Tensor | None) -> Tensor:
    """Identity in the forward pass; accumulates the gradient of the bias, if any, in the backward pass."""
    if bias is None:
        return projected
    found: Tensor = _WithBiasGradient.apply(projected, bias)  # type: ignore[no-untyped-call]
    return found


def branches(mixed: Tensor | None, normed: Tensor, block: Block, casts: Casts, in_products: bool = True) -> Tensor:
    """Return the feed-forward net of `normed` plus the output of attention, whose mixed values are given, or the net
    alone [rows, width].  The biases of both outputs are not added.

    With `in_products`, GELU is computed inside the kernels of the products.
    """
    maps = hidden_maps(block)
    biases = [part.bias for part in maps if part.bias is not None]
    learns = torch.is_grad_enabled()  # within the function it never is
    found: Tensor = _Branches.apply(  # type: ignore[no-untyped-call]
        mixed,
        normed,
        None if mixed is None else casts.out,
        casts.up,
        casts.down,
        len(maps) == 2,
        learns,
        in_products,
        None if mixed is None else block.attention.out.weight,
        block.feed_forward.out.weight,
        *(part.weight for part in maps),
        *biases,
    )
    return found
