"""How the next token is chosen from its scores."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config import Settings
from longreach.seeding import Draws


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Settings):
    """Greedy by default.  With a temperature, tokens are drawn from what top_k and top_p leave."""

    temperature: float = 0.0
    """Scores are divided by it; 0 takes the best token."""
    top_k: int = 0
    """Only the so many best tokens; 0: all."""
    top_p: float = 1.0
    """Only the best tokens that together have at least this probability."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must not be negative, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must not be negative, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise ValueError("top_k and top_p need a temperature above 0")

    def choose(self, logits: Float[Tensor, "b v"], draws: Draws | None) -> Int[Tensor, "b"]:
        """One token per row.  `draws` numbers the rows, so that a row's choice does not depend on its batch."""
        if self.temperature == 0:
            return logits.argmax(-1)
        if draws is None:
            raise ValueError("drawing tokens needs a seed")
        scores = self.keep(logits.double() / self.temperature)
        # the largest of scores plus Gumbel noise is a draw from their softmax
        noise = -(-draws.uniform("token", scores.shape[1]).clamp(min=1e-300).log()).log()
        return (scores + noise).argmax(-1)

    def keep(self, scores: Float[Tensor, "b v"]) -> Float[Tensor, "b v"]:
        """Scores with what top_k and top_p leave out at minus infinity."""
        if self.top_k:
            least = scores.topk(min(self.top_k, scores.shape[1]), dim=-1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p < 1:
            ordered, order = scores.sort(dim=-1, descending=True)
            before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            dropped = (before >= self.top_p).scatter(1, order, before >= self.top_p)
            scores = scores.masked_fill(dropped, -torch.inf)
        return scores
