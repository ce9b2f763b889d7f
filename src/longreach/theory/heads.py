"""Heads of the class: weights over sets of k positions, and a prediction from the tokens of each set."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.theory.types import Types
from longreach.theory.words import check_laws, number

_AT_ONCE = 1 << 21  # weights held in memory at a time


class TheoryHead(ABC):
    """A mixture: mass over a few outcomes, and a law over the classes for each outcome.

    h(X) = mass @ g / mass.sum(), and 0 where there is no mass.
    """

    g: Float[Tensor, "m c"]

    @abstractmethod
    def mass(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b m"]:
        """Of each outcome."""

    def forward(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b c"]:
        mass = self.mass(tokens)
        return _share(mass @ self.g, mass.sum(1, keepdim=True))

    def losses(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b c"]:
        """1 - h(X) for each label, as the mass on wrong outcomes: exactly 0 where there is none, 1 without mass."""
        mass = self.mass(tokens)
        total = mass.sum(1, keepdim=True)
        return _share(mass @ (1 - self.g), total).masked_fill(total == 0, 1)

    def loss(self, tokens: Int[Tensor, "b l"], labels: Int[Tensor, "b"]) -> Float[Tensor, "b"]:
        return self.losses(tokens).gather(1, labels[:, None])[:, 0]


@dataclass(frozen=True, eq=False)
class SparseHead(TheoryHead):
    """h(X) = sum_S a(tau(S), X_S) g(X_S) / sum_S a(tau(S), X_S), by listing all S that have a type."""

    types: Types
    a: Float[Tensor, "t n"]
    """Weights, by type and by the number of the word."""
    g: Float[Tensor, "m c"]
    """A law over the classes for each word."""

    def __post_init__(self) -> None:
        if len(self.g) != self.vocab_size**self.types.k:
            raise ValueError(f"g must have a row for each word of {self.types.k} tokens, got {len(self.g)} rows")
        if self.a.shape[1] != len(self.g):
            raise ValueError(f"a must have a column for each of the {len(self.g)} words, got {self.a.shape[1]}")
        if not bool((self.a >= 0).all()) or not bool(self.a.isfinite().all()):
            raise ValueError(f"a must be finite and must not be negative, got {float(self.a.min()):.6g}")
        check_laws("g", self.g)

    @cached_property
    def vocab_size(self) -> int:
        root: float = len(self.g) ** (1 / self.types.k)
        return round(root)

    def mass(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b m"]:
        check_tokens(tokens, self.vocab_size)
        if self.types.num_types(tokens.shape[1]) > len(self.a):
            raise ValueError(f"a must have a row for each type at length {tokens.shape[1]}, got {len(self.a)}")
        return word_mass(self.types, self.a, self.vocab_size, tokens)

    def weights(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b s"]:
        """The weight of every set, in the order of `types.subsets`."""
        check_tokens(tokens, self.vocab_size)
        positions, types = self.types.subsets(tokens.shape[1])
        return self.a[types, number(tokens[:, positions], self.vocab_size)]


def word_mass(
    types: Types, a: Float[Tensor, "t n"], vocab_size: int, tokens: Int[Tensor, "b l"]
) -> Float[Tensor, "b n"]:
    """The total weight of the sets at which each word stands."""
    positions, kind = types.subsets(tokens.shape[1])
    columns = positions.T.contiguous()
    offset, flat = kind * a.shape[1], a.flatten()
    parts = []
    for block in torch.split(tokens, max(1, _AT_ONCE // len(kind))):
        word = torch.zeros(len(block), len(kind), dtype=torch.long)
        for column in columns:
            word.mul_(vocab_size).add_(block[:, column])
        weight = flat[offset + word]
        parts.append(torch.zeros(len(block), a.shape[1], dtype=a.dtype).scatter_add(1, word, weight))
    return torch.cat(parts)


def check_tokens(tokens: Int[Tensor, "b l"], vocab_size: int) -> None:
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
        outside = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
        raise ValueError(f"tokens must be from 0 to {vocab_size - 1}, got {outside}")


def _share(part: Float[Tensor, "b c"], total: Float[Tensor, "b 1"]) -> Float[Tensor, "b c"]:
    return torch.where(total > 0, part / total.where(total > 0, 1.0), 0.0)
