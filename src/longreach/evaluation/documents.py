"""Averages over tokens whose uncertainty comes from documents: tokens of one document are alike."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.seeding import generator

RESAMPLES = 1000


def over_documents(
    values: Float[Tensor, "*rows n"], document: Int[Tensor, "n"], share: float = 0.95
) -> tuple[Float[Tensor, "*rows"], Float[Tensor, "*rows"], Float[Tensor, "*rows"]]:
    """Mean over tokens, and the interval that contains this share of the means when documents are drawn anew
    (bootstrap).  With one document there is nothing to draw: the interval is not a number."""
    names, member = torch.unique(document, return_inverse=True)
    sums = torch.zeros(*values.shape[:-1], len(names), dtype=torch.double)
    sums.index_add_(-1, member, values.double())
    sizes = torch.bincount(member).double()
    mean = sums.sum(-1) / sizes.sum()
    if len(names) == 1:
        unknown = torch.full_like(mean, torch.nan)
        return mean, unknown, unknown
    weights = draw_documents(len(names))
    means = sums @ weights.T / (weights @ sizes)
    ends = torch.tensor([(1 - share) / 2, (1 + share) / 2], dtype=torch.double)
    low, high = means.quantile(ends, dim=-1)
    return mean, low, high


def resampled_documents(document: Int[Tensor, "n"]) -> Float[Tensor, "resamples n"]:
    """How often each token counts when documents are drawn anew."""
    names, member = torch.unique(document, return_inverse=True)
    return draw_documents(len(names))[:, member]


def draw_documents(count: int) -> Float[Tensor, "resamples {count}"]:
    """How often each document is drawn."""
    picked = torch.randint(count, (RESAMPLES, count), generator=generator(0, "documents"))
    drawn = torch.zeros(RESAMPLES, count, dtype=torch.double)
    return drawn.scatter_add_(1, picked, torch.ones_like(picked, dtype=torch.double))
