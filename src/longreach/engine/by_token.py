"""The first layer, as far as it depends on tokens alone.

Until tokens look at each other, equal ones have equal states: IDs enter with attention, unless the encoding adds them
to the embeddings.  So the first layer's queries, keys and values, and what a feed-forward net beside attention adds,
are computed once for each entry of the vocabulary and looked up for every token read.  A batch has thousands of tokens
and the vocabulary of a task a few dozen, so that the layer costs little more than its attention.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.engine.stacking import row_numbers
from longreach.model.block import Block, LayerInputs, at_places

TOKENS_PER_ENTRY = 2
"""Tokens of a batch for each entry of the vocabulary from which there is something to save."""
MOST_ENTRIES = 256
"""Entries of a table whose gradient is computed as a product: beyond, the product is more work than sorting."""
MOST_NUMBERS = 1 << 26
"""Numbers of the matrix that it is multiplied with."""


class _LookUp(torch.autograd.Function):
    """Looks up rows; the gradient is a product with a matrix of zeros and ones.

    A GPU adds up the gradients of equal tokens by sorting them, in thirty launches that wait for each other, and
    compiled code on a CPU one number at a time.  A product is quicker, and adds in the same order every time.
    """

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


def product_is_small(index: Int[Tensor, "b *n"], table: Float[Tensor, "*m v w"]) -> bool:
    """Return whether the gradient of a table is computed quickly as a product."""
    entries = table.shape[-2]
    return entries <= MOST_ENTRIES and index.numel() * entries <= MOST_NUMBERS


def look_up(
    index: Int[Tensor, "b *n"], table: Float[Tensor, "*m v w"], by_product: bool = False
) -> Float[Tensor, "b *n w"]:
    """Return rows of a table, or of all stacked models' tables one below the other."""
    # in half precision a CPU would round every sum that it adds to
    slow = by_product or torch.compiler.is_compiling() or table.dtype in (torch.bfloat16, torch.float16)
    if slow and torch.is_grad_enabled() and product_is_small(index, table):
        found: Tensor = _LookUp.apply(index, table)  # type: ignore[no-untyped-call]
        return found
    return nn.functional.embedding(index, table.flatten(0, -2))


class Entries(NamedTuple):
    """The entries of the vocabulary that were read, before anything is looked up."""

    table: Float[Tensor, "m v w"]
    number: Int[Tensor, "b *n"]
    """The row of each in the table, or in all stacked models' tables one below the other."""
    by_product: bool
    """Whether gradients are computed by products."""

    @classmethod
    def of(cls, embed: nn.Embedding, tokens: Int[Tensor, "b *n"], by_product: bool) -> "Entries":
        if embed.weight.dim() == 2:
            return cls(embed.weight[None], tokens, by_product)
        return cls(embed.weight, row_numbers(embed.weight, tokens), by_product)

    def look_up(self, table: Float[Tensor, "m v w"]) -> Float[Tensor, "b *n w"]:
        """Return for every token its row of a table that was computed from the vocabulary's."""
        return look_up(self.number, table, self.by_product)

    def at(self, places: Int[Tensor, "b a"]) -> "Entries":
        """Return the entries at some places."""
        return Entries(self.table, self.number.gather(1, places), self.by_product)


class ProductEmbedding(nn.Embedding):
    """Embeddings whose gradient is computed by a product."""

    def forward(self, tokens: Int[Tensor, "b *n"]) -> Float[Tensor, "b *n w"]:
        entries = Entries.of(self, tokens, by_product=True)
        return entries.look_up(entries.table)


def first_layer(
    block: Block,
    read: Entries,
    inputs: LayerInputs,
    at: Int[Tensor, "b a"] | None,
    reads_states: bool,
) -> Float[Tensor, "b _ w"]:
    """Apply the first layer to the entries that were read; `reads_states` if attention rescales its scores."""
    attention, table = block.attention, read.table
    normed = block.norm1(table)
    states = read.look_up(normed) if reads_states else None
    mixed = attention.attend(read.look_up(attention.qkv(normed)), states, inputs, 0)
    attended: Tensor = attention.out(at_places(mixed, at))
    wanted = read if at is None else read.at(at)
    if block.parallel:
        return attended + wanted.look_up(table + block.feed_forward(block.norm2(table)))
    x = attended + wanted.look_up(table)
    return x + block.feed_forward(block.norm2(x))  # type: ignore[no-any-return]
