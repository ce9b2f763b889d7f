"""Embeddings of tokens, with a gradient that suits small vocabularies."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

_MOST_ENTRIES = 256
"""Of a table whose gradient is a product: beyond, the product is more work than sorting."""
_MOST_NUMBERS = 1 << 26
"""Of the matrix that it is multiplied with: the pairs of tokens that look into a table of distances are too many."""


class _LookUp(torch.autograd.Function):
    """A GPU adds up the gradients of equal tokens by sorting them, in thirty launches that wait for each other.  A
    product with a matrix of zeros and ones is one, and adds in the same order every time."""

    @staticmethod
    def forward(ctx: Any, index: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return nn.functional.embedding(index, table.flatten(0, -2))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        (index,) = ctx.saved_tensors
        *models, entries, width = ctx.shape
        d_rows = gradients[0].reshape(*models, -1, width)
        number = index.reshape(*models, -1, 1) % entries  # each model has its part of the table
        chosen = (number == torch.arange(entries, device=index.device)).to(d_rows.dtype)
        return None, chosen.transpose(-2, -1) @ d_rows


def look_up(index: Int[Tensor, "b *n"], table: Float[Tensor, "*m v w"]) -> Float[Tensor, "b *n w"]:
    """Rows of a table, or of all stacked models' tables one below the other."""
    entries = table.shape[-2]
    small = entries <= _MOST_ENTRIES and index.numel() * entries <= _MOST_NUMBERS
    if index.is_cuda and small and torch.is_grad_enabled():
        found: Tensor = _LookUp.apply(index, table)  # type: ignore[no-untyped-call]
        return found
    return nn.functional.embedding(index, table.flatten(0, -2))


class TokenEmbedding(nn.Embedding):
    def forward(self, index: Int[Tensor, "b *n"]) -> Float[Tensor, "b *n w"]:
        return look_up(index, self.weight)
