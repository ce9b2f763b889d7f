"""Run by test_update.py in a process of its own, where Triton interprets its kernels on the CPU: prints how far they
are from clipping and AdamW as torch has them."""

import json
import sys
from itertools import product

import torch
from torch import nn

from longreach.engine import update
from longreach.engine.stacked_training import clip_each, take_shares
from longreach.training.optimizer import OptimizerConfig, build_optimizer

update._BLOCK, update._PIECES, update._SUMS = 16, 4, 4  # so that all of them are needed several times
RATE = 0.01


class Net(nn.Module):
    def __init__(self, models):
        super().__init__()
        self.linear = nn.Linear(1, 1)  # whose weights decay
        generator = torch.Generator().manual_seed(0)
        draw = lambda *shape: nn.Parameter(torch.randn(models, *shape, generator=generator))  # noqa: E731
        self.linear.weight, self.linear.bias, self.scale, self.unused = draw(30, 7), draw(30), draw(1), draw(3)


def give_gradients(nets, step, spoilt):
    generator = torch.Generator().manual_seed(step)
    for one, other in zip(*(net.parameters() for net in nets), strict=True):
        if one is not nets[0].unused:
            one.grad = torch.randn(one.shape, generator=generator) * 10.0**-step
            if spoilt:
                one.grad[-1].flatten()[0] = torch.nan
            other.grad = one.grad.clone()


def errors(models, clip, beta1, shares, spoilt=False):
    config = OptimizerConfig(clip=clip, beta1=beta1, weight_decay=0.5, eps=1e-6)
    nets = Net(models), Net(models)
    optimizers = [build_optimizer(config, net) for net in nets]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = RATE
    share = torch.linspace(0.1, 1, models) if shares else torch.ones(models)
    take, worst = None, 0.0
    for step in range(4):
        give_gradients(nets, step, spoilt and step == 3)
        before = [parameter.detach().clone() for parameter in nets[1].parameters()]
        norms = clip_each(list(nets[1].parameters()), clip or torch.inf, models)
        optimizers[1].step()
        take_shares(list(nets[1].parameters()), before, share)
        if take is None:  # torch's own, which makes moments
            for one, other in zip(*(net.parameters() for net in nets), strict=True):
                one.data.copy_(other)
            for parameter, state in optimizers[1].state.items():
                one = next(p for p, q in zip(*(n.parameters() for n in nets), strict=True) if q is parameter)
                optimizers[0].state[one] = {name: tensor.clone() for name, tensor in state.items()}
            assert update.fits(optimizers[0])
            take = update.Update(optimizers[0], clip or torch.inf, torch.tensor(RATE), share)
            continue
        take.find_gradients()
        pairs = [(take(), norms)]
        for one, other in zip(*(net.parameters() for net in nets), strict=True):
            pairs.append((one.detach(), other.detach()))
            of_one, of_other = optimizers[0].state.get(one, {}), optimizers[1].state.get(other, {})
            assert of_one.keys() == of_other.keys()
            pairs += [(of_one[name], of_other[name]) for name in of_one]
        if spoilt and step == 3:  # the last model, and nothing of the others
            assert not any(one[-1].isfinite().any() for one in (pairs[0][0], nets[0].linear.bias, nets[0].scale))
            pairs = [(one[:-1], other[:-1]) for one, other in pairs if one.dim()]
        for one, other in pairs:
            error = (one - other).abs().max() / other.abs().max().clamp(min=1e-6)
            worst = max(worst, float(error.nan_to_num(nan=torch.inf)))
    return worst


cases = list(product((1, 3), (0.0, 0.1, 1e3), (0.9, 0.0), (False, True)))
found = {str(case): errors(*case) for case in cases} | {"spoilt": errors(3, 0.1, 0.9, False, spoilt=True)}
json.dump(found, sys.stdout)
