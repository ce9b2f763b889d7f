"""A state looks back at everything read: by itself a head, and a part of others."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from longreach.attention import exact_dtype

_SLOPE = 0.2
"""At the start, of the growth of scores with the logarithm of the number of tokens."""
_LOG_SCALE = math.log(10)
"""At the start, of cosines, which are at most 1."""


class LookBack(nn.Module):
    """How much each token read matters to a state, by products of what was learned of both."""

    def __init__(self, width: int, cosines: bool = False) -> None:
        super().__init__()
        self.width, self.cosines = width, cosines
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(2 * width, width)
        self.slope = nn.Parameter(torch.full((), _SLOPE))
        if cosines:
            self.log_scale = nn.Parameter(torch.full((), _LOG_SCALE))

    def initialise(self) -> None:
        nn.init.constant_(self.slope, _SLOPE)
        if self.cosines:
            nn.init.constant_(self.log_scale, _LOG_SCALE)

    def remember(self, hidden: Float[Tensor, "b t w"], tokens: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        """What later states will look at, from states and token embeddings."""
        key: Tensor = self.key(torch.cat([hidden, tokens], dim=-1))
        return normalize(key, dim=-1) if self.cosines else key

    def slope_of(self, hidden: Float[Tensor, "b a w"]) -> Float[Tensor, "#b #a"]:
        """Return the slope of the growth of scores, for each row."""
        return self.slope[None, None]

    def scale_of(self, hidden: Float[Tensor, "b a w"]) -> Float[Tensor, "#b #a"]:
        """Return the scale of cosines, for each row."""
        return self.log_scale.exp()[None, None]

    def forward(
        self, hidden: Float[Tensor, "b a w"], visible: Int[Tensor, "b a"], memory: Float[Tensor, "b t w"]
    ) -> Float[Tensor, "b a t"]:
        """Log-weights; minus infinity for what has not been read."""
        query = self.query(hidden)
        scores = (normalize(query, dim=-1) if self.cosines else query) @ memory.transpose(1, 2)
        exact = exact_dtype(scores)
        scores = scores.to(exact)
        scores = scores * self.scale_of(hidden)[..., None] if self.cosines else scores / self.width**0.5
        growth = 1 + self.slope_of(hidden) * visible.to(exact).log()
        unseen = torch.arange(memory.shape[1], device=memory.device) >= visible[..., None]
        return (scores * growth[..., None]).masked_fill(unseen, -torch.inf).log_softmax(-1)


class CopyHead(nn.Module):
    """Say a token of the vocabulary, or one that was read (See et al., ACL 2017): a gate mixes the two."""

    def __init__(self, width: int, cosines: bool = False) -> None:
        super().__init__()
        self.look_back = LookBack(width, cosines)
        self.gate = nn.Linear(width, 1)

    def forward(
        self,
        hidden: Float[Tensor, "b a w"],
        visible: Int[Tensor, "b a"],
        tokens: Int[Tensor, "b t"],
        memory: Float[Tensor, "b t w"],
        logits: Float[Tensor, "b a v"],
    ) -> Float[Tensor, "b a v"]:
        """Log-probabilities of the mixture; `logits` are the vocabulary's alone."""
        weights = self.look_back(hidden, visible, memory).exp()
        read = tokens[:, None].expand_as(weights)
        copied = weights.new_zeros(logits.shape).scatter_add(2, read, weights)
        exact = exact_dtype(logits)
        gate = self.gate(hidden).to(exact)
        tiny = torch.finfo(torch.float32).tiny
        from_past = copied.clamp(min=tiny).log() + torch.nn.functional.logsigmoid(gate)
        from_vocabulary = logits.to(exact).log_softmax(-1) + torch.nn.functional.logsigmoid(-gate)
        return torch.logaddexp(from_past, from_vocabulary)
