"""The first layer, as far as it depends on tokens alone.

Until tokens look at each other, equal ones have equal states: IDs enter with attention, unless the encoding adds them
to the embeddings.  So the first layer's queries, keys and values, and what a feed-forward net beside attention adds,
are computed once for each entry of the vocabulary and looked up for every token read.  A batch has thousands of tokens
and the vocabulary of a task a few dozen, so that the layer costs little more than its attention.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.engine.parts import is_plain, is_watched
from longreach.model.block import Block, FeedForward, SelfAttention, at_places
from longreach.model.embedding import Entries, TokenEmbedding, is_small

_TOKENS_PER_ENTRY = 2
"""At least, of a batch: below, there is little to save."""


def pays(tokens: Int[Tensor, "b t"], embed: nn.Embedding) -> bool:
    """Whether the batch has enough tokens, and their gradients are added up quickly and exactly."""
    by_product = tokens.is_cuda or torch.is_autocast_enabled(tokens.device.type)
    bad = by_product and torch.is_grad_enabled() and not is_small(tokens, embed.weight)
    return tokens.numel() >= _TOKENS_PER_ENTRY * embed.weight.shape[:-1].numel() and not bad


def suits(embed: nn.Module, block: nn.Module) -> bool:
    """Whether nothing in the first layer but attention can tell equal tokens apart, and nobody watches."""
    if type(block) is not Block:
        return False
    attention, net = block.attention, block.feed_forward
    maps = [part for part in (attention.qkv, net.gate, net.up, net.out) if part is not None]
    return (
        (type(attention), type(net)) == (SelfAttention, FeedForward)
        and is_plain(embed, TokenEmbedding)
        and all(is_plain(norm, nn.LayerNorm, nn.RMSNorm) for norm in (block.norm1, block.norm2))
        and all(is_plain(part, nn.Linear) for part in maps)
        # attention itself is asked as ever
        and not is_watched(embed, block, block.norm1, block.norm2, attention, attention.qkv, *net.modules())
    )


def first_layer(
    block: nn.Module, read: Entries, at: Int[Tensor, "b a"] | None = None, **context: Any
) -> Float[Tensor, "b _ w"]:
    """What the block makes of the entries that were read."""
    assert isinstance(block, Block)
    attention, table = block.attention, read.table
    normed = block.norm1(table)
    states = read.look_up(normed) if attention.mix.reads_states else None
    mixed = attention.attend(read.look_up(attention.qkv(normed)), states, **context)
    attended: Tensor = attention.out(at_places(mixed, at))
    wanted = read if at is None else read.at(at)
    if block.parallel:
        return attended + wanted.look_up(table + block.feed_forward(block.norm2(table)))
    x = attended + wanted.look_up(table)
    return x + block.feed_forward(block.norm2(x))  # type: ignore[no-any-return]
