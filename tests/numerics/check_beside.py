"""Run by test_beside.py in a process of its own, where Triton interprets its kernels on the CPU: prints whether
gradients of weights can come after a backward pass, and whether it is found out where they cannot."""

import json
import sys

import torch
from by_kernels import by_kernels, small_model
from losses import token_losses

from longreach.api import LlamaConfig, TransformerConfig
from longreach.engine.second_stream import Watch, beside_backward


class Late:
    """What is made beside a backward pass comes after it; whoever looks before finds no numbers."""

    def __init__(self):
        self.late = []

    def run(self, make, *read):
        made = make(*read)
        tensors = made if isinstance(made, tuple) else (made,)
        # one that is held itself would not become a gradient, but a copy of it
        self.late += [(tensor.detach(), tensor.clone()) for tensor in tensors]
        for tensor in tensors:
            tensor.fill_(torch.nan)
        return made

    def come(self):
        for tensor, value in self.late:
            tensor.copy_(value)


def backward(model, sample, ids, way, also=lambda model: 0.0):
    """Something may be added to the loss."""
    more = also(model)
    with beside_backward(way):
        (token_losses(model, sample, ids).sum() + more).backward()


def late_gradients(kind, models, kernel, by_token):
    """Return how many gradients come late, and whether they equal those that come at once."""
    model, sample, ids = small_model(kind(layers=2, width=64, heads=2), models)
    twin, gradients = by_kernels(model, kernel, by_token), []
    for way in (Late(), Watch()):
        model.zero_grad()
        backward(twin, sample, ids, way)
        if isinstance(way, Late):
            way.come()
        gradients.append([parameter.grad for parameter in model.parameters()])
    return {
        "late": len(way.made),
        "found right": way.finds_nobody_waiting(model.parameters()),
        "same": all(torch.equal(one, other) for one, other in zip(*gradients, strict=True)),
    }


def tie(model):
    model.blocks[1].feed_forward = model.blocks[0].feed_forward


def hook(model):
    model.blocks[0].norm1.weight.register_hook(lambda gradient: None)


def hook_after(model):
    model.norm.weight.register_post_accumulate_grad_hook(lambda parameter: None)


def decay(model):
    """Its gradient comes last, and autograd may add it in place to the one that is there."""
    return model.blocks[1].attention.out.weight.square().sum()


def found_right(change, passes=1, **options):
    model, sample, ids = small_model(TransformerConfig(layers=2, width=64, heads=2), 1)
    change(model)
    twin = by_kernels(model, "short", by_token=True)
    for _ in range(passes):
        watch = Watch()
        backward(twin, sample, ids, watch, **options)
    return watch.finds_nobody_waiting(model.parameters())


cases = [
    (TransformerConfig, 1, "short", True),
    (TransformerConfig, 1, "none", False),
    (TransformerConfig, 2, "short", False),
    (TransformerConfig, 2, "rotary", True),
    (LlamaConfig, 1, "short", True),
    (LlamaConfig, 2, "none", False),
]
json.dump(
    {
        "late": {f"{case[0].__name__} {case[1:]}": late_gradients(*case) for case in cases},
        "found right": {
            "as it is": found_right(lambda model: None),
            "two passes": found_right(lambda model: None, passes=2),
            "tied": found_right(tie),
            "in the loss": found_right(lambda model: None, also=decay),
            "hook": found_right(hook),
            "hook after": found_right(hook_after),
        },
    },
    sys.stdout,
)
