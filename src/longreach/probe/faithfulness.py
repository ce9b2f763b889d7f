"""How well weights predict what masks do: the rank correlation on fresh masks (LDS, the linear datamodelling score)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def faithfulness(
    weights: Float[Tensor, "n t"], kept: Bool[Tensor, "m t"], true: Float[Tensor, "m n"]
) -> Float[Tensor, "n"]:
    """Per target; NaN where the weights tell masks not apart, or the truth does not."""
    return rank_correlation((kept.float() @ weights.T).T, true.T)


def rank_correlation(one: Float[Tensor, "n m"], other: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
    """Spearman's, row by row."""
    one, other = _ranks(one), _ranks(other)
    one, other = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    return (one * other).sum(1) / (one.square().sum(1) * other.square().sum(1)).sqrt()


def _ranks(values: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """Equal values share the mean of their ranks: how many are smaller, and half of how many are equal."""
    smaller = (values[:, None, :] < values[:, :, None]).sum(2)
    equal = (values[:, None, :] == values[:, :, None]).sum(2)
    return (smaller + equal / 2).to(torch.float64)
