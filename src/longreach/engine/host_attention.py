"""Rotation of queries and keys on a CPU: both at once, and the gradient of the projection is written in place."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.model.block import LayerInputs, SelfAttention


class HostAttention(SelfAttention):
    """Self-attention that splits and rotates the projection in one step of the backward pass."""

    def turned(
        self, qkv: Float[Tensor, "b t wide"], inputs: LayerInputs
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b h t d"], Float[Tensor, "b h t d"]]:
        if inputs.rotation is None or inputs.rotation[0].dtype != qkv.dtype or torch.compiler.is_compiling():
            return super().turned(qkv, inputs)
        found: tuple[Tensor, Tensor, Tensor] = _SplitAndRotate.apply(qkv, *inputs.rotation, self.heads)  # type: ignore[no-untyped-call]
        return found


class _SplitAndRotate(torch.autograd.Function):
    """Splits the projection into queries, keys and values, and rotates queries and keys."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        by_part = _by_part(qkv, heads)
        rotated = torch.empty(by_part[:2].shape, dtype=qkv.dtype, device=qkv.device)
        _rotate_into(rotated, by_part[:2], cos, sin)
        return rotated[0], rotated[1], by_part[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        b, heads, t, d = gradients[0].shape
        d_qkv = torch.empty(b, t, heads * 3 * d, dtype=gradients[0].dtype, device=gradients[0].device)
        by_part = _by_part(d_qkv, heads)
        for part, gradient in zip(by_part[:2], gradients[:2], strict=True):
            _rotate_into(part, gradient, cos, -sin)
        by_part[2].copy_(gradients[2])
        return d_qkv, None, None, None


def _by_part(qkv: Float[Tensor, "b t wide"], heads: int) -> Float[Tensor, "3 b h t d"]:
    """Return a view of the queries, keys and values of all heads."""
    b, t, _ = qkv.shape
    return qkv.view(b, t, heads, 3, -1).permute(3, 0, 2, 1, 4)


def _rotate_into(out: Tensor, x: Tensor, cos: Float[Tensor, "b 1 t p"], sin: Float[Tensor, "b 1 t p"]) -> None:
    """Write what `rotate` returns."""
    first, second = x.chunk(2, dim=-1)
    out_first, out_second = out.chunk(2, dim=-1)
    torch.addcmul(first * cos, second, sin, value=-1, out=out_first)
    torch.addcmul(second * cos, first, sin, out=out_second)
