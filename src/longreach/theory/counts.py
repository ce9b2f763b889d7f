"""Heads that are blind to positions: all sets of k positions alike, so that how often each token occurs is enough."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from longreach.theory.chain import Dfa
from longreach.theory.heads import TheoryHead, check_tokens


@dataclass(frozen=True, eq=False)
class CountHead(TheoryHead):
    """A(S, X) = prod_i u(X_{s_i}) for every S, however wide; g(X_S) = output of an automaton that no order matters to.

    The `ChainHead` with free gaps and one u for all places, in steps that do not grow with the length: the mass of
    sets with j of the n occurrences of a token is C(n, j) u^j times that of the rest.
    """

    k: int
    """Tokens in a set."""
    u: Float[Tensor, "v"]
    """Weight of each token."""
    dfa: Dfa
    """Reads the tokens of a set."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")
        if not (bool((self.u >= 0).all()) and bool(self.u.isfinite().all())):
            raise ValueError(f"u must be finite and must not be negative, got {float(self.u.min()):.6g}")
        if len(self.u) != self.dfa.step.shape[1]:
            raise ValueError(f"u must have an entry for each of {self.dfa.step.shape[1]} tokens, got {len(self.u)}")
        moves = self.dfa.moves
        for first in range(len(self.u)):
            for second in range(first):
                if not torch.allclose(moves[first] @ moves[second], moves[second] @ moves[first]):
                    raise ValueError(f"no order may matter to the automaton, but that of {second} and {first} does")

    @property
    def g(self) -> Float[Tensor, "q c"]:  # type: ignore[override]
        return self.dfa.output

    def mass(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b q"]:
        check_tokens(tokens, len(self.u))
        if tokens.shape[1] < self.k:
            raise ValueError(f"length must be at least {self.k}, got {tokens.shape[1]}")
        counts = torch.stack([(tokens == token).sum(1) for token in range(len(self.u))], dim=1)
        different, which = torch.unique(counts, dim=0, return_inverse=True)  # few, where most tokens are background
        return self._sums(different.double())[which]

    def _sums(self, counts: Float[Tensor, "b v"]) -> Float[Tensor, "b q"]:
        """Token by token, by how many are taken and the state."""
        sums = torch.zeros(len(counts), self.k + 1, len(self.dfa.step), dtype=torch.float64)
        sums[:, 0, 0] = 1.0
        for weight, move, count in zip(self.u, self.dfa.moves, counts.unbind(1), strict=True):
            more = sums
            for taken in range(1, self.k + 1):
                more = more @ move
                ways = _binomial(count, taken) * weight**taken
                sums = sums + F.pad(more, (0, 0, taken, 0))[:, : self.k + 1] * ways[:, None, None]
        return sums[:, self.k]


def _binomial(count: Float[Tensor, "b"], taken: int) -> Float[Tensor, "b"]:
    """C(count, taken), in floats, which do not overflow."""
    ways = torch.ones_like(count)
    for step in range(taken):
        ways = ways * (count - step).clamp(min=0)
    return ways / math.factorial(taken)
