"""Softmax attention with a bias of single pairs: torch's flex_attention, which computes it inside the kernel, for GPUs.

Scores and biases are never written out: memory grows with the length.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from longreach.positions.encodings import PairBias

FROM = 2048
"""Tokens from which it is used: it compiles for seconds, and the biases of fewer tokens fit into memory."""
HEAD_SIZES = (16, 32, 64, 128)
_BLOCK = 128
"""Tokens of a block, which the kernel leaves out, takes whole or takes in part."""
_VARIANTS = 64
"""How often torch may compile it: for every kind of bias, precision and shape of heads, with gradients and without."""
_OPTIONS = {"FLOAT32_PRECISION": "'ieee'"}
"""In fp32 products are exact: which key is ahead must not hang on the last bits of tf32."""


def attend(
    q: Float[Tensor, "b h t d"], k: Float[Tensor, "b h t d"], v: Float[Tensor, "b h t d"], bias: PairBias
) -> Float[Tensor, "b h t d"]:
    """Causal attention."""

    def add_bias(score: Tensor, sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + bias(sequence, head, query, key)

    blocks = causal_blocks(q.shape[2], q.device)
    # as torch's other kernels do under autocast, where norms give queries and keys another precision than values have
    q, k = q.to(v.dtype), k.to(v.dtype)
    with torch.autocast(q.device.type, enabled=False):
        mixed: Tensor = _kernel()(q, k, v, score_mod=add_bias, block_mask=blocks, kernel_options=_OPTIONS)
    return mixed


def _kernel() -> Callable[..., Any]:
    """The compiled one; where a whole model is being compiled, it becomes a part of that."""
    if torch.compiler.is_compiling():
        return flex_attention
    return _compiled()


@cache
def _compiled() -> Callable[..., Any]:
    """Compiled for the first length as it is; when a second one comes, once more for all others (torch's default).

    `fullgraph`: beyond its limit torch would give up compiling without a word, and write all scores out.
    """
    kernel: Callable[..., Any] = torch.compile(flex_attention, fullgraph=True)

    def call(*args: object, **kwargs: object) -> object:
        with torch._dynamo.config.patch(recompile_limit=_VARIANTS):
            return kernel(*args, **kwargs)

    return call


def causal_blocks(tokens: int, device: torch.device) -> BlockMask:
    """Which blocks of keys a block of queries sees: those before it whole, its own in part.  A last block that is not
    full sees all in part, as torch has it.

    Said directly: torch's way to find out writes a mask of all pairs.
    """
    count = -(-tokens // _BLOCK)
    blocks = torch.arange(count, dtype=torch.int32, device=device)
    ragged = (blocks == count - 1) & (tokens % _BLOCK > 0)
    in_order = blocks.expand(count, count).contiguous()
    # the last goes in order: kernels stop after as many keys as there are, so that a block that is not full ends it
    in_part = torch.where(ragged[:, None], in_order, (blocks[:, None] + blocks) % count)
    return BlockMask.from_kv_blocks(
        torch.where(ragged, count, 1).int()[None, None],
        in_part[None, None],
        torch.where(ragged, 0, blocks).int()[None, None],
        in_order[None, None],
        BLOCK_SIZE=_BLOCK,
        mask_mod=_causal,
        seq_lengths=(tokens, tokens),
    )


def _causal(sequence: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key
