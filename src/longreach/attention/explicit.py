"""Attention that no fused kernel has: scores are written out, a few queries at a time."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention.base import Attention

_SCORES = 1 << 28
"""Scores that are held at once where no gradient is asked."""


class ExplicitAttention(Attention):
    """Base of attentions that say in `weigh` how scores become weights."""

    def forward(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Float[Tensor, "b h q k"] | None,
    ) -> Float[Tensor, "b h q d"]:
        q = self.rescale(q, visible)
        size = max(1, _SCORES // (q.shape[0] * q.shape[1] * k.shape[2]))
        exact = torch.promote_types(q.dtype, torch.float32)
        mixed = []
        for start in range(0, q.shape[2], size):
            part = slice(start, start + size)
            scores = (q[:, :, part] @ k.transpose(2, 3)).to(exact) * q.shape[3] ** -0.5
            if bias is not None:
                scores = scores + bias[:, :, part]
            seen = _causal(q, k, part) if mask is None else mask[:, :, part]
            mixed.append(self.weigh(scores.masked_fill(~seen, -torch.inf)).to(v.dtype) @ v)
        return torch.cat(mixed, dim=2)


def _causal(q: Tensor, k: Tensor, part: slice) -> Bool[Tensor, "q k"]:
    rows = torch.arange(q.shape[2], device=q.device)[part]
    return torch.arange(k.shape[2], device=q.device) <= rows[:, None]
