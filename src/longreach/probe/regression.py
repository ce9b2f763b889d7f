"""Sparse linear regressions of many outcomes on the same masks.

Minimises |y - a - X w|^2 / 2m + penalty |w|_1 for every outcome.  All share X, so its Gram matrix is made once and a
step of accelerated proximal gradient descent is one matrix product for all of them.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_STEPS = 400
_TOLERANCE = 1e-4
"""Descent stops when no weight moves by more, relative to the largest."""
_PENALTIES = 14
_SMALLEST = 0.01
"""The last penalty of a path, as a share of the smallest one under which all weights are 0."""


@dataclass(frozen=True)
class Gram:
    """All that a regression needs to know of masks and outcomes."""

    features: Float[Tensor, "t t"]
    outcomes: Float[Tensor, "t n"]

    @classmethod
    def of(cls, kept: Bool[Tensor, "m t"], outcomes: Float[Tensor, "m n"]) -> "Gram":
        x, y = kept.float(), outcomes.float()
        x, y = x - x.mean(0), y - y.mean(0)  # the intercept
        return cls(x.T @ x / len(x), x.T @ y / len(x))


def lasso(
    gram: Gram,
    penalty: Float[Tensor, "n"],
    allowed: Bool[Tensor, "t n"],
    start: Float[Tensor, "t n"] | None = None,
) -> Float[Tensor, "t n"]:
    """Weights of each outcome; what is not allowed stays 0."""
    rate = 1 / torch.linalg.eigvalsh(gram.features)[-1].clamp(min=1e-12)
    weights = torch.zeros_like(gram.outcomes) if start is None else start
    ahead, momentum = weights, 1.0
    for _ in range(_STEPS):
        moved = ahead - rate * (gram.features @ ahead - gram.outcomes)
        after = (moved.abs() - rate * penalty).clamp(min=0) * moved.sign() * allowed
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = after + (momentum - 1) / following * (after - weights)
        change = (after - weights).abs().max()
        weights, momentum = after, following
        if change <= _TOLERANCE * weights.abs().max():
            break
    return weights


def choose_by_held_out(
    kept: Bool[Tensor, "m t"],
    outcomes: Float[Tensor, "m n"],
    held_out: Bool[Tensor, "h t"],
    true: Float[Tensor, "h n"],
    allowed: Bool[Tensor, "t n"],
) -> Float[Tensor, "t n"]:
    """For every outcome the weights of that penalty whose predictions on held-out masks are nearest."""
    gram = Gram.of(kept, outcomes)
    silencing = (gram.outcomes.abs() * allowed).amax(0)
    weights = torch.zeros_like(gram.outcomes)
    best, least = weights, torch.full_like(silencing, torch.inf)
    for share in torch.logspace(0, math.log10(_SMALLEST), _PENALTIES).tolist():
        weights = lasso(gram, share * silencing, allowed, weights)
        error = _error(weights, kept, outcomes, held_out, true)
        best = torch.where(error < least, weights, best)
        least = torch.minimum(error, least)
    return best


def noise_level(
    weights: Float[Tensor, "t n"],
    kept: Bool[Tensor, "m t"],
    outcomes: Float[Tensor, "m n"],
    held_out: Bool[Tensor, "h t"],
    true: Float[Tensor, "h n"],
) -> Float[Tensor, "n"]:
    """Return the noise of each outcome's weights, in the outcome's unit.

    This is the error that the weights leave on held-out masks, divided by sqrt(m v), where m is the number of masks
    and v the variance of a token's mask: the standard error that one weight of an ordinary regression on independent
    masks would have.  The weights are shrunken (lasso), and a penalty was chosen on the same held-out masks, so weight
    +- 1.96 noise is not a 95% interval: it is off centre and covers true weights more or less often than that.  The
    noise serves as a threshold against chance.
    """
    spread = kept.float().var(0, correction=0).mean()
    return (_error(weights, kept, outcomes, held_out, true) / (len(kept) * spread)).sqrt()


def _error(
    weights: Float[Tensor, "t n"],
    kept: Bool[Tensor, "m t"],
    outcomes: Float[Tensor, "m n"],
    held_out: Bool[Tensor, "h t"],
    true: Float[Tensor, "h n"],
) -> Float[Tensor, "n"]:
    centred = held_out.float() - kept.float().mean(0)
    return (centred @ weights + outcomes.mean(0) - true).square().mean(0)
