"""Several models of one shape as one: what every part of a model must know about it, which is little.

Stacked weights have one more dimension, in front: the model.  The rows of a batch belong to the models in turn, first
all of the first, then all of the second.
"""

from jaxtyping import Float
from torch import Tensor


def for_rows(parameter: Tensor, dims: int, rows: int) -> Float[Tensor, "#rows ..."]:
    """A parameter of so many dimensions as the rows of a batch see it: one for all, or each that of its model."""
    if parameter.dim() == dims:
        return parameter[None]
    return parameter.repeat_interleave(rows // len(parameter), 0)


def times_transposed(x: Float[Tensor, "b *n w"], weight: Tensor) -> Float[Tensor, "b *n v"]:
    """x @ weight.T, each row with the weight of its model."""
    if weight.dim() == 2:
        return x @ weight.T
    return (x.reshape(len(weight), -1, x.shape[-1]) @ weight.transpose(1, 2)).view(*x.shape[:-1], -1)
