"""Stick-breaking: from the nearest key backwards, each takes its share of what is left."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from longreach.attention.base import Attention, AttentionConfig
from longreach.config.registry import register
from longreach.positions.encodings import Shape


@register("attention", "stick_breaking")
@dataclass(frozen=True, kw_only=True)
class StickBreakingConfig(AttentionConfig):
    """A key's share is the sigmoid of its score; what it leaves goes on to the key before it (Tan et al., ICLR 2025).

    Order in the text is built in, so no encoding is needed; keys far behind cannot dilute what is near.  Weights may
    add up to less than 1.  The token itself takes part, where the authors leave it out: the first one has nothing else.
    """

    paper = "Tan et al., ICLR 2025"

    def build(self, shape: Shape) -> Attention:
        return StickBreaking()


class StickBreaking(Attention):
    fused = False

    def weigh(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        unseen = scores == -torch.inf
        scores = scores.masked_fill(unseen, 0.0)  # any number will do: gradients of infinities are not numbers
        left = logsigmoid(-scores).masked_fill(unseen, 0.0)
        nearer = left.flip(-1).cumsum(-1).flip(-1) - left  # what the keys behind this one have left
        return (logsigmoid(scores) + nearer).exp().masked_fill(unseen, 0.0)
