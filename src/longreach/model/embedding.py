"""Embeddings of tokens, with a gradient that suits small vocabularies."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

_MOST_ENTRIES = 256
"""Of a table whose gradient is a product: beyond, the product is more work than sorting."""
_MOST_NUMBERS = 1 << 26
"""Of the matrix that it is multiplied with: the pairs of tokens that look into a table of distances are too many."""


class _LookUp(torch.autograd.Function):
    """A GPU adds up the gradients of equal tokens by sorting them, in thirty launches that wait for each other, and
    compiled code on a CPU one number at a time.  A product with a matrix of zeros and ones is quicker, and adds in the
    same order every time."""

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


def is_small(index: Int[Tensor, "b *n"], table: Float[Tensor, "*m v w"]) -> bool:
    """Whether a product that adds up the table's gradient is little work."""
    entries = table.shape[-2]
    return entries <= _MOST_ENTRIES and index.numel() * entries <= _MOST_NUMBERS


def look_up(index: Int[Tensor, "b *n"], table: Float[Tensor, "*m v w"]) -> Float[Tensor, "b *n w"]:
    """Rows of a table, or of all stacked models' tables one below the other."""
    # in half precision a CPU would round every sum that it adds to
    slow = index.is_cuda or torch.compiler.is_compiling() or table.dtype in (torch.bfloat16, torch.float16)
    if slow and is_small(index, table) and torch.is_grad_enabled():
        found: Tensor = _LookUp.apply(index, table)  # type: ignore[no-untyped-call]
        return found
    return nn.functional.embedding(index, table.flatten(0, -2))


class Entries(NamedTuple):
    """Which entries of the vocabulary were read, before anything is looked up."""

    table: Float[Tensor, "m v w"]
    number: Int[Tensor, "b *n"]
    """Where each stands in the table, or in all stacked models' tables one below the other."""

    def look_up(self, table: Float[Tensor, "m v w"]) -> Float[Tensor, "b *n w"]:
        """For every token its row of a table that was made from the vocabulary's."""
        return look_up(self.number, table)

    def at(self, places: Int[Tensor, "b a"]) -> "Entries":
        """Those read at some places."""
        return Entries(self.table, self.number.gather(1, places))


class TokenEmbedding(nn.Embedding):
    def read(self, tokens: Int[Tensor, "b *n"]) -> Entries:
        return Entries(self.weight[None], tokens)

    def forward(self, tokens: Int[Tensor, "b *n"]) -> Float[Tensor, "b *n w"]:
        read = self.read(tokens)
        return read.look_up(read.table)
