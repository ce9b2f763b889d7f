"""Clipping and AdamW in two kernels, against torch's."""

from pathlib import Path

import pytest
import torch
from on_gpu import run_apart

pytest.importorskip("triton")


def test_the_kernels_do_what_torch_does():
    errors = run_apart(Path(__file__).with_name("check_update.py"), interpreted=True)
    assert len(errors) == 25
    assert max(errors.values()) < 2e-6, errors


@pytest.mark.parametrize(
    ("build", "change", "fits"),
    [
        (torch.optim.AdamW, lambda weight: None, True),
        (torch.optim.Adam, lambda weight: None, False),
        (lambda weights: torch.optim.AdamW(weights, amsgrad=True), lambda weight: None, False),
        (lambda weights: torch.optim.AdamW(weights, maximize=True), lambda weight: None, False),
        (torch.optim.AdamW, lambda weight: setattr(weight, "grad", torch.ones(3, 2).t()), False),
        (torch.optim.AdamW, lambda weight: setattr(weight, "grad", None), False),
        (torch.optim.AdamW, lambda weight: setattr(weight, "data", torch.ones(3, 2).t()), False),
    ],
)
def test_they_are_used_where_they_do_the_same(build, change, fits):
    from longreach.train.update import fits as fit

    weight = torch.nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.ones(2, 3)
    change(weight)
    assert fit(build([weight])) is fits


def test_weights_in_double_precision_are_left_to_torch():
    from longreach.train.update import fits

    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.double))
    weight.grad = torch.ones(2, dtype=torch.double)
    assert not fits(torch.optim.AdamW([weight]))
