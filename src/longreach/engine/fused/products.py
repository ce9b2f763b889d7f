"""Products of rows with the weights of a model, or of rows with those of the model that each belongs to."""

import torch
from torch import Tensor


def times(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T for x [rows, in] and a weight [out, in], or one for each of the stacked models."""
    if weight.dim() == 2:
        return x @ weight.t()
    return torch.bmm(_by_model(x, weight), weight.transpose(1, 2)).flatten(0, 1)


def add_times(total: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The same, added to a total, which is overwritten."""
    if weight.dim() == 2:
        return total.addmm_(x, weight.t())
    _by_model(total, weight).baddbmm_(_by_model(x, weight), weight.transpose(1, 2))
    return total


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x @ weight.T + bias."""
    if weight.dim() == 2:
        return torch.addmm(bias, x, weight.t())
    # in a product with bias, torch would write the bias out for every row first
    return torch.bmm(_by_model(x, weight), weight.transpose(1, 2)).add_(bias[:, None]).flatten(0, 1)


def backward(d_out: Tensor, weight: Tensor) -> Tensor:
    """The gradient of x."""
    if weight.dim() == 2:
        return d_out @ weight
    return torch.bmm(_by_model(d_out, weight), weight).flatten(0, 1)


def weight_gradient(d_out: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """In fp32, whatever is multiplied."""
    if weight.dim() == 2:
        return _in_fp32(torch.mm, d_out.t(), x)
    return _in_fp32(torch.bmm, _by_model(d_out, weight).transpose(1, 2), _by_model(x, weight))


def _by_model(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.view(len(weight), -1, rows.shape[1])


def _in_fp32(product, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    """Added up in fp32, and not rounded after; a CPU has no such product."""
    found: Tensor = product(a, b, out_dtype=torch.float32) if a.is_cuda else product(a.float(), b.float())
    return found
