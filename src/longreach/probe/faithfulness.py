"""How well weights predict the effect of masks: rank correlation on fresh masks (LDS, linear datamodelling score)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_TIE = 1e-5
"""Values share a rank if they differ by less than this share of the row's largest absolute value.

Equal masks have equal outcomes up to rounding, about 1e-6 in float32.  Exact comparison would rank that rounding.
"""


def faithfulness(
    weights: Float[Tensor, "n t"], kept: Bool[Tensor, "m t"], true: Float[Tensor, "m n"]
) -> Float[Tensor, "n"]:
    """Return the score per target; NaN if all predictions or all outcomes are equal."""
    return rank_correlation((kept.double() @ weights.double().T).T, true.T)


def rank_correlation(one: Float[Tensor, "n m"], other: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
    """Return Spearman's rank correlation, row by row."""
    one, other = _ranks(one), _ranks(other)
    one, other = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    return (one * other).sum(1) / (one.square().sum(1) * other.square().sum(1)).sqrt()


def _ranks(values: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """Return ranks; tied values share their mean rank: the number of smaller values plus half the number of ties."""
    tie = _TIE * values.abs().nan_to_num(posinf=0).amax(1)[:, None, None]
    own, other = values[:, :, None], values[:, None, :]
    equal = (own == other) | ((own - other).abs() <= tie)
    smaller = (other < own) & ~equal
    return (smaller.sum(2) + equal.sum(2) / 2).to(torch.float64)
