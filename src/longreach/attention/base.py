"""What an attention is: it turns queries, keys and values into mixed values."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from longreach.errors import BadInput
from longreach.positions.encodings import Shape
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
        bias: Float[Tensor, "b h q k"] | None,
    ) -> Float[Tensor, "b h q d"]:
        """Without a mask, queries and keys are the same tokens and attention is causal."""
        q = self.rescale(q, visible)
        if q.shape[2] == 1 and mask is not None:
            return _one_query(q, k, v, mask, bias)
        if bias is None:
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        if mask is None:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        return scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(~mask, -torch.inf))


def _one_query(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None) -> Float[Tensor, "b h 1 d"]:
    """A step of generation: two products of a vector and a matrix, which fused kernels do as for a block of them."""
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if bias is not None:
        scores = scores + bias
    weights: Tensor = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights @ v


@kind("attention")
@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Base of the settings of an attention: what a recipe names."""

    def build(self, shape: Shape) -> Attention:
        raise BadInput(f"attention {name_of(type(self))} does not say how to build it")
