"""What an attention is: it turns queries, keys and values into mixed values."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from longreach.errors import BadInput
from longreach.positions.encodings import Bias, Shape
from longreach.registry import kind, name_of


class Attention(nn.Module):
    """Softmax attention through torch's fused kernels.  A subclass may rescale the queries."""

    def rescale(self, q: Float[Tensor, "b h q d"], visible: Int[Tensor, "#b q"]) -> Float[Tensor, "b h q d"]:
        """Queries, given how many keys each of them sees."""
        return q

    def weigh(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        """By what values are mixed; a score of minus infinity is a key that must not be seen."""
        return scores.softmax(-1)

    def forward(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        """Without a mask, queries and keys are the same tokens and attention is causal."""
        q = self.rescale(q, visible)
        if q.shape[2] == 1 and mask is not None:
            # a step of generation: two products of a vector and a matrix, which fused kernels do as for a block of them
            return self.write_out(q, k, v, mask, bias)
        if bias is None:
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        mixed = []
        for part in parts(q, k):
            added = bias(part).to(q.dtype).masked_fill(~seen(q, k, mask, part), -torch.inf)
            mixed.append(scaled_dot_product_attention(q[:, :, part], k, v, attn_mask=added))
        return torch.cat(mixed, dim=2)

    def write_out(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        """The formula, a part of the queries at a time, for queries that are rescaled already."""
        return torch.cat([self.weights(q, k, mask, bias, part).to(v.dtype) @ v for part in parts(q, k)], dim=2)

    def weights(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
        part: slice,
    ) -> Float[Tensor, "b h some k"]:
        """By what values are mixed, for a part of the queries."""
        exact = torch.promote_types(q.dtype, torch.float32)
        scores = (q[:, :, part] @ k.transpose(2, 3)).to(exact) * q.shape[3] ** -0.5
        if bias is not None:
            scores = scores + bias(part)
        return self.weigh(scores.masked_fill(~seen(q, k, mask, part), -torch.inf))


_SCORES = 1 << 28
"""Scores that are written out at once."""


def parts(q: Float[Tensor, "b h q d"], k: Float[Tensor, "b h k d"]) -> Iterator[slice]:
    """All queries, in so many parts that their scores fit into memory."""
    size = max(1, _SCORES // (q.shape[0] * q.shape[1] * k.shape[2]))
    for start in range(0, q.shape[2], size):
        yield slice(start, min(start + size, q.shape[2]))


def seen(q: Tensor, k: Tensor, mask: Tensor | None, part: slice) -> Bool[Tensor, "*b some k"]:
    """Which keys a part of the queries sees."""
    if mask is not None:
        return mask[:, :, part]
    rows = torch.arange(part.start, part.stop, device=q.device)
    return torch.arange(k.shape[2], device=q.device) <= rows[:, None]


@kind("attention")
@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Base of the settings of an attention: what a recipe names."""

    def build(self, shape: Shape) -> Attention:
        raise BadInput(f"attention {name_of(type(self))} does not say how to build it")
