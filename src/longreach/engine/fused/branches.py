"""The products of a layer with their gradients, written out.

Weights come twice: as they are trained, in fp32, and as they are multiplied with, in half precision.  Gradients of
weights are added up in fp32 and stay so, and what autograd would cast, copy and sum on the way is left out.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from longreach.engine.fused import gelu_products
from longreach.engine.fused.gelu import gelu_and_slopes, gelu_backward
from longreach.engine.fused.groups import sum_rows
from longreach.engine.fused.products import add_times, affine, backward, times, weight_gradient
from longreach.engine.second_stream import beside


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
    @staticmethod
    def forward(
        ctx: Any,
        mixed: Tensor | None,
        normed: Tensor,
        out: Tensor | None,
        up: Tensor,
        up_bias: Tensor,
        down: Tensor,
        cast_out: Tensor | None,
        cast_up: Tensor,
        cast_down: Tensor,
        learns: bool,
        in_products: bool,
    ) -> Tensor:
        ctx.in_products = in_products
        if in_products and gelu_products.fits(normed, cast_up):
            hidden, slopes = gelu_products.gelu_of_product(normed, cast_up, up_bias, with_slopes=learns)
        else:
            hidden, slopes = gelu_and_slopes(times(normed, cast_up), up_bias, with_slopes=learns)
        ctx.save_for_backward(mixed, normed, slopes, hidden, up_bias, cast_out, cast_up, cast_down)
        if mixed is None or cast_out is None:
            return times(hidden, cast_down)
        return add_times(times(mixed, cast_out), hidden, cast_down)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mixed, normed, slopes, hidden, up_bias, cast_out, cast_up, cast_down = ctx.saved_tensors
        d_added = gradients[0].contiguous()
        if ctx.in_products and gelu_products.fits(d_added, cast_down):
            d_units, d_up_bias = gelu_products.backward_of_product(d_added, cast_down, slopes, up_bias)
        else:
            d_units, d_up_bias = gelu_backward(backward(d_added, cast_down), slopes, up_bias)
        alone = mixed is None
        d_mixed, d_normed = None if alone else backward(d_added, cast_out), backward(d_units, cast_up)
        # last: what others wait for is begun before
        d_out = None if alone else beside(weight_gradient, d_added, mixed, cast_out)
        d_up = beside(weight_gradient, d_units, normed, cast_up)
        d_down = beside(weight_gradient, d_added, hidden, cast_down)
        return d_mixed, d_normed, d_out, d_up, d_up_bias, d_down, *[None] * 5


def project(x: Tensor, weight: Tensor, cast: Tensor, cast_bias: Tensor | None) -> Tensor:
    """A linear map of x [rows, width], with a bias or without.  Its bias gets no gradient here: whoever makes the
    gradient of the result can add it up on the way."""
    found: Tensor = _Project.apply(x, weight, cast, cast_bias)  # type: ignore[no-untyped-call]
    return found


def with_bias_gradient(projected: Tensor, bias: Tensor) -> Tensor:
    """The same, and its bias gets the sum of its gradient, for those who do not add it up."""
    found: Tensor = _WithBiasGradient.apply(projected, bias)  # type: ignore[no-untyped-call]
    return found


def branches(
    mixed: Tensor | None,
    normed: Tensor,
    weights: tuple[Tensor | None, Tensor, Tensor, Tensor],
    casts: tuple[Tensor | None, Tensor, Tensor],
    in_products: bool = True,
) -> Tensor:
    """What attention, whose mixed values are given, and the feed-forward net, whose input is, add to the states [rows,
    width], but for the two biases of their outputs; or the net alone.

    Weights are attention's output, up, its bias, down; casts are those of the matrices.  With `in_products`, GELU is
    computed inside the kernels of the products.
    """
    learns = torch.is_grad_enabled()  # within the function it never is
    found: Tensor = _Branches.apply(mixed, normed, *weights, *casts, learns, in_products)  # type: ignore[no-untyped-call]
    return found
