"""Attention that no fused kernel has."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention.base import Attention
from longreach.positions.encodings import Bias


class ExplicitAttention(Attention):
    """Base of attentions that say in `weigh` how scores become weights: they are always written out."""

    def forward(
        self,
        q: Float[Tensor, "b h q d"],
        k: Float[Tensor, "b h k d"],
        v: Float[Tensor, "b h k d"],
        visible: Int[Tensor, "#b q"],
        mask: Bool[Tensor, "b 1 q k"] | None,
        bias: Bias | None,
    ) -> Float[Tensor, "b h q d"]:
        return self.write_out(self.rescale(q, visible), k, v, visible, mask, bias)
