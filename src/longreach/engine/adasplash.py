"""Entmax attention in memory that grows with the length: the kernel of the package adasplash, for GPUs.

Exact entmax sorts the scores of every query, so that all of them must be written out.  adasplash (Goncalves et al.,
ICML 2025) searches the threshold block by block instead, forward and backward.
"""

import torch
from jaxtyping import Float
from torch import Tensor

FROM = 1024
"""Tokens from which it is used: it tunes itself for minutes at every new size, and shorter scores fit into memory."""
HEAD_SIZES = (16, 32, 64, 128, 256)
PRECISIONS = (torch.float32, torch.bfloat16)
"""Thresholds are searched in fp32: for fp64 that is not enough."""


def attend(
    q: Float[Tensor, "b h t d"], k: Float[Tensor, "b h t d"], v: Float[Tensor, "b h t d"]
) -> Float[Tensor, "b h t d"]:
    """Causal 1.5-entmax attention.  The kernel wants a power of two: tokens are added behind, where none looks."""
    from adasplash import adasplash

    tokens = q.shape[2]
    behind = (1 << (tokens - 1).bit_length()) - tokens
    padded = [torch.nn.functional.pad(x, (0, 0, 0, behind)).contiguous() for x in (q, k, v)]
    mixed: Tensor = adasplash(*padded, alpha=1.5, is_causal=True)
    return mixed[:, :, :tokens]
