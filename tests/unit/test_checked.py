"""Tests run with checks of types and shapes."""

from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from torch import Tensor

import longreach.api as lr

checked = jaxtyping.jaxtyped(typechecker=None)  # as in a module of the package


@checked
@dataclass(frozen=True)
class Size:
    width: int


@checked
def half(size: "int | Size") -> int:
    return size / 2


@checked
def product(a: Float[Tensor, "b c"], b: Float[Tensor, "c"]) -> Float[Tensor, "b"]:
    return a * b if a.shape[0] == 1 else a @ b


@checked
def zeros(width: int) -> Float[Tensor, "{width}"]:
    return torch.zeros(3)


@checked
def wide(a: Float[Tensor, "b c"]) -> Float[Tensor, "b c"]:
    product(torch.zeros(4, 5), torch.zeros(5))  # has axes of its own
    return a


def test_values_that_fit_pass():
    assert product(torch.ones(2, 3), torch.ones(3)).tolist() == [3, 3]
    assert zeros(3).shape == wide(torch.zeros(3, 1))[:, 0].shape
    assert Size(2).width == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: Size("2"),
        lambda: half("2"),
        lambda: half(2),
        lambda: product(torch.ones(2, 3).long(), torch.ones(3)),
        lambda: product(torch.ones(2, 3), torch.ones(2)),
        lambda: product(torch.ones(1, 3), torch.ones(3)),
        lambda: zeros(4),
        lambda: lr.Span("a", 2),
        lambda: lr.stream(0, "test", torch.zeros(2, 2).long()),
    ],
)
def test_values_that_do_not_fit_are_refused(call):
    with pytest.raises((BeartypeCallHintViolation, jaxtyping.TypeCheckError)):
        call()
