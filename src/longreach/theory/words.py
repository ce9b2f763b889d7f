"""Words of k tokens as numbers in row-major order, so that any function of a word is a table; and laws as tables."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def words(vocab_size: int, k: int) -> Int[Tensor, "n {k}"]:
    """All vocab_size**k words, in the order of their numbers."""
    places = vocab_size ** torch.arange(k - 1, -1, -1)
    return torch.arange(vocab_size**k)[:, None] // places % vocab_size


def number(word: Int[Tensor, "*n k"], vocab_size: int) -> Int[Tensor, "*n"]:
    """The number of each word; the word without tokens is number 0."""
    total = torch.zeros(word.shape[:-1], dtype=torch.long)
    for token in word.unbind(-1):
        total = total * vocab_size + token
    return total


def power(base: Float[Tensor, "v"], k: int) -> Float[Tensor, "n"]:
    """The law of k independent tokens, over the numbers of the words."""
    law = torch.ones(1, dtype=torch.float64)
    for _ in range(k):
        law = torch.outer(law, base).flatten()
    return law


def draw(law: Float[Tensor, "n"], uniform: Float[Tensor, "*b"]) -> Int[Tensor, "*b"]:
    """An index from the law for each uniform number; an index of probability 0 never comes."""
    possible = law.nonzero()[:, 0]
    return possible[torch.bucketize(uniform, law[possible].cumsum(0)[:-1], right=True)]


def check_laws(name: str, laws: Float[Tensor, "*n c"]) -> None:
    """Each row must be a law."""
    if laws.dtype != torch.float64:
        raise ValueError(f"{name} must be float64, got {laws.dtype}")
    totals = laws.sum(-1)
    if not bool((laws >= 0).all()) or not bool(((totals - 1).abs() < 1e-6).all()):  # NaN fails both
        off = float(totals.flatten()[(totals.flatten() - 1).abs().argmax()])
        least = float(laws.min())
        raise ValueError(
            f"{name} must not be negative and must add up to 1, got sum {off:.6g} and smallest {least:.6g}"
        )
