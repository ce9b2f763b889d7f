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


def _optimizer(dtype=torch.float32, **settings):
    """Has taken a step."""
    weights = [torch.nn.Parameter(torch.ones(2, 3, dtype=dtype)) for _ in range(2)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([{"params": [weights[0]]}, {"params": [weights[1]]}], **settings)
    optimizer.step()
    return optimizer


def _weight(optimizer):
    return optimizer.param_groups[0]["params"][0]


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (lambda optimizer: None, True),
        (lambda optimizer: optimizer.param_groups[0].update(weight_decay=0.5, lr=1.0), True),
        (lambda optimizer: optimizer.param_groups[0].update(eps=0.5), False),
        (lambda optimizer: optimizer.param_groups[0].update(betas=(0.1, 0.2)), False),
        (lambda optimizer: [group.update(amsgrad=True) for group in optimizer.param_groups], False),
        (lambda optimizer: [group.update(maximize=True) for group in optimizer.param_groups], False),
        (lambda optimizer: setattr(_weight(optimizer), "grad", None), True),
        (lambda optimizer: optimizer.zero_grad(), False),  # nothing to do
        (lambda optimizer: setattr(_weight(optimizer), "grad", torch.ones(3, 2).t()), False),
        (lambda optimizer: setattr(_weight(optimizer), "data", torch.ones(3, 2).t()), False),
        (lambda optimizer: optimizer.state[_weight(optimizer)].update(exp_avg=torch.ones(3, 2).t()), False),
        (lambda optimizer: optimizer.state[_weight(optimizer)].update(exp_avg=torch.ones(2, 3).half()), False),
        (lambda optimizer: optimizer.register_step_post_hook(lambda *_: None), False),
    ],
)
def test_they_are_used_where_they_do_the_same(change, fits):
    from longreach.engine.update import fits as fit

    optimizer = _optimizer()
    change(optimizer)
    assert fit(optimizer) is fits


def test_other_optimizers_and_precisions_are_left_to_torch():
    from longreach.engine.update import fits

    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    adam = torch.optim.Adam([weight])
    adam.step()
    assert not fits(adam)
    assert not fits(_optimizer(torch.double))
