"""What the probe asks of a model: how likely tokens are, when some of the earlier ones are hidden.

A hidden token is there for itself alone: no other token sees it, in any layer.  Positions do not move.  So a
prediction is a function of the tokens that are seen and of nothing else, and `check_hiding` makes sure of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from longreach.errors import BadInput
from longreach.evaluation import PassCost
from longreach.seeding import stream

_CHECKED_TOKENS = 12
_HIDDEN = (3, 4, 8)
"""Tokens that the check hides."""


@dataclass
class ComputedWork:
    """What a model was asked to compute."""

    forwards: int = 0
    tokens: int = 0


class LanguageModel:
    """Base of the adapters.  A subclass gives `scores` and what stands here without a value."""

    name: str
    """With its precision, for records."""
    vocabulary_size: int
    longest: int | None
    """The most tokens it can read; None where there is no limit."""
    device: torch.device
    embedding: nn.Module
    """What turns tokens into vectors: gradients are taken there."""
    numbers_per_token: int
    """Roughly how many numbers a layer holds for a token at once: its width, several times."""
    heads: int
    exact_when_left_out: bool = False
    """Whether a token hidden from all may as well be left out of the sequence; `check_hiding` finds out."""

    def __init__(self, memory: int = 1 << 30) -> None:
        self.memory, self.work = memory, ComputedWork()

    @cached_property
    def fingerprint(self) -> str:
        """What identifies the model, whatever its name; empty where only the name does."""
        return ""

    def scores(
        self,
        tokens: Int[Tensor, "b r"],
        positions: Int[Tensor, "b r"],
        keep: Bool[Tensor, "b r r"] | None,
        at: Int[Tensor, "a"],
    ) -> Float[Tensor, "b a v"]:
        """Logits of the token after those `at` some places.  `keep[row, i, j]`: token i may see token j, on top of
        causality; every token sees itself."""
        raise BadInput(f"{type(self).__name__} does not say how likely tokens are")

    def scores_in_parts(
        self, tokens: Int[Tensor, "b r"], positions: Int[Tensor, "b r"], at: Int[Tensor, "a"], size: int
    ) -> Iterator[Float[Tensor, "b _ v"]]:
        """The same for so many places at a time, with nothing hidden.  Each part takes a pass of its own where a
        subclass does not know better."""
        for part in torch.split(at, size):
            yield self.scores(tokens, positions, None, part)

    def log_probabilities(
        self,
        tokens: Int[Tensor, "b t"],
        targets: Int[Tensor, "a"],
        keep: Bool[Tensor, "b t t"] | None = None,
        positions: Int[Tensor, "b t"] | None = None,
    ) -> Float[Tensor, "b a"]:
        """Of the tokens at the places `targets`, each given those before it.  The last token is never read."""
        read = tokens.shape[1] - 1
        if positions is None:
            positions = torch.arange(read + 1, device=tokens.device).expand_as(tokens)
        seen = None if keep is None else keep[:, :read, :read]
        scores = self.scores(tokens[:, :read], positions[:, :read], seen, targets - 1).float()
        self.work.forwards += tokens.shape[0]
        self.work.tokens += tokens.shape[0] * read
        return scores.log_softmax(-1).gather(2, tokens[:, targets, None])[..., 0]

    def full_context(
        self, tokens: Int[Tensor, "t"], targets: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """Log-probability of each target with nothing hidden, and the entropy of that prediction."""
        read = tokens[None, :-1]
        positions = torch.arange(read.shape[1], device=tokens.device)[None]
        with torch.no_grad():
            log_p = self.scores(read, positions, None, targets - 1)[0].float().log_softmax(-1)
        self.work.forwards += 1
        self.work.tokens += read.shape[1]
        found = log_p.gather(1, tokens[targets, None])[:, 0]
        return found, torch.special.entr(log_p.exp()).sum(-1)

    def pass_cost(self) -> PassCost:
        """Return the memory and arithmetic of one pass."""
        raise BadInput(f"{type(self).__name__} does not say what a pass costs")

    def rows(self, length: int, targets: int) -> int:
        """How many sequences fit into memory at once."""
        logits = 3 * targets * self.vocabulary_size
        layer = length * (self.numbers_per_token + length * (self.heads + 2))
        return max(1, self.memory // (4 * (logits + layer)))


@torch.no_grad()
def check_hiding(model: LanguageModel) -> None:
    """Refuse a model that lets hidden tokens through, and find out whether they may be left out of the sequence."""
    draws = stream(0, "probe/check", torch.arange(2, device=model.device))
    one, other = draws.below("tokens", model.vocabulary_size, _CHECKED_TOKENS)
    other = torch.where(other == one, (one + 1) % model.vocabulary_size, other)
    index = torch.arange(_CHECKED_TOKENS, device=model.device)
    hidden = (index[:, None] == torch.tensor(_HIDDEN, device=model.device)).any(1)
    seen = (~hidden).expand(2, _CHECKED_TOKENS, _CHECKED_TOKENS)
    both = torch.stack([one, torch.where(hidden, other, one)])
    watched = (~hidden).nonzero()[1:, 0]
    watched = watched[~hidden[watched - 1]]  # a hidden token still sees itself
    before, after = model.log_probabilities(both, watched, seen)
    if not bool(before.isfinite().all()):
        raise BadInput(f"{model.name}: its predictions are not finite numbers")
    if not torch.allclose(before, after, rtol=0, atol=1e-4):
        raise BadInput(f"{model.name}: tokens that a mask hides still change what it predicts: it cannot be probed")
    one_way, other_way = model.log_probabilities(both, watched)
    if torch.allclose(one_way, other_way, rtol=0, atol=1e-4):
        raise BadInput(f"{model.name}: its predictions do not depend on earlier tokens")
    short = (~hidden).nonzero()[:, 0]
    places = (short[:, None] == watched).nonzero()[:, 0]
    left_out = model.log_probabilities(one[None, short], places, positions=short[None])[0]
    precise = "fp32" in model.name
    model.exact_when_left_out = torch.allclose(left_out, before, rtol=0, atol=1e-3 if precise else 0.1)
    model.work = ComputedWork()
