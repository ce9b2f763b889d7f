"""Run by test_fused_layers.py in a process of its own, where Triton interprets its kernels on the CPU: prints how far
they are from the reference."""

import json
import sys
from functools import partial

import torch
from by_kernels import by_kernels, small_model
from losses import token_losses

from longreach.api import LlamaConfig, ScaledSoftmaxConfig, TransformerConfig
from longreach.engine.fused import gelu_products
from longreach.engine.fused.gate import gate_backward, gate_units
from longreach.engine.fused.gelu import gelu_and_slopes, gelu_backward
from longreach.engine.fused.look_up import look_up
from longreach.engine.fused.norm import add_and_norm
from longreach.engine.fused.rotary import turn_apart
from longreach.positions.encodings import rotate

_generator = torch.Generator().manual_seed(0)


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=_generator, dtype=dtype)


def apart(found, wanted):
    """As shares of the largest entry; what is not a number is infinitely far."""
    errors = [(a - b).abs().max() / b.abs().max().clamp(min=1e-6) for a, b in zip(found, wanted, strict=True)]
    return [float(error.nan_to_num(nan=torch.inf)) for error in errors]


def gelu_errors(rows, width, models, biased=True):
    x, bias, towards = 3 * draw(rows, width), draw(models, width), draw(rows, width)
    before, shift = x.clone().requires_grad_(), (biased * bias).requires_grad_()
    value = torch.nn.functional.gelu(before.view(models, -1, width) + shift[:, None]).view(rows, width)
    wanted = [value.detach(), *torch.autograd.grad(value, (before, shift) if biased else before, towards)]
    single = bias.float() if biased else None
    after, slopes = gelu_and_slopes(x.float(), single)
    d_units, d_bias = gelu_backward(towards.float(), slopes, single)
    return apart([after, d_units, *([d_bias] if biased else [])], wanted)


def gate_errors(rows, width, models, biased):
    x, towards = 3 * draw(rows, 2 * width), draw(rows, width)
    biases = [draw(models, width).requires_grad_() for _ in range(2 * biased)]
    before = x.clone().requires_grad_()
    gate, up = (part.reshape(models, -1, width) for part in before.chunk(2, dim=1))
    if biased:
        gate, up = gate + biases[0][:, None], up + biases[1][:, None]
    value = (torch.nn.functional.silu(gate) * up).view(rows, width)
    wanted = [value.detach(), *torch.autograd.grad(value, (before, *biases), towards)]
    single = tuple(bias.detach().float() for bias in biases)
    d_units, d_biases = gate_backward(towards.float(), x.float(), single)
    return apart([gate_units(x.float(), single), d_units, *d_biases], wanted)


def gelu_product_errors(rows, depth, width, models, biased=True):
    """Return errors of GELU within the products before and after it."""
    x, up, bias = draw(rows, depth), draw(models, width, depth) / depth**0.5, biased * draw(models, width)
    down, towards = draw(models, depth, width), draw(rows, depth)
    before, shift = (x.view(models, -1, depth) @ up.transpose(1, 2)).requires_grad_(), bias.clone().requires_grad_()
    value = torch.nn.functional.gelu(before + shift[:, None])
    d_before, d_bias = torch.autograd.grad((value @ down.transpose(1, 2)).view(rows, depth), (before, shift), towards)
    single = [part.float().squeeze(0) for part in (x, up, bias, down, towards)]
    assert gelu_products.fits(single[0], single[1])
    assert gelu_products.fits(single[4], single[3])

    def run(x, up, bias, down, towards):
        bias = bias if biased else None
        after, slopes = gelu_products.gelu_of_product(x, up, bias)
        d_units, d_bias = gelu_products.backward_of_product(towards, down, slopes, bias)
        return [after, d_units, *([d_bias] if biased else [])]

    found = run(*single)
    if models > 1:  # the last one is spoilt: the others must not notice
        spoilt = [part.clone() for part in single]
        for part in spoilt:
            part[-len(part) // models :] = torch.nan
        for whole, some in zip(found, run(*spoilt), strict=True):
            half = len(whole) // models * (models - 1)
            assert torch.equal(whole[:half], some[:half])
    wanted = [value.detach().view(rows, width), d_before.view(rows, width)]
    return apart(found, [*wanted, *([d_bias.view(single[2].shape)] if biased else [])])


def look_up_errors(models, entries, width, rows):
    table, towards = draw(models, entries, width).requires_grad_(), draw(models * rows, width)
    number = torch.randint(entries, (models, rows), generator=_generator) + entries * torch.arange(models)[:, None]
    wanted = torch.nn.functional.embedding(number.flatten(), table.flatten(0, 1))
    single = table.detach().float().requires_grad_()
    found = look_up(single, number)
    gradients = [torch.autograd.grad(found, single, towards.float()), torch.autograd.grad(wanted, table, towards)]
    return apart([found.detach(), *gradients[0]], [wanted.detach(), *gradients[1]])


def norm_errors(rows, width, biases_added, count, new_norm=torch.nn.LayerNorm):
    """Return errors of a sum with so many biases, or of states alone if None, and of so many norms."""
    adds = biases_added is not None
    norms = [new_norm(width, eps=1e-5, dtype=torch.float64) for _ in range(count)]
    for norm in norms:
        for parameter in norm.parameters():
            parameter.data = draw(width)
    x, added = 2 + draw(rows, width), draw(rows, width) if adds else None
    biases = draw(biases_added, width) if biases_added else None
    towards = [draw(rows, width) for _ in range(1 + count)]

    def run(compute, dtype):
        copies = [norm.to(dtype) for norm in norms]
        inputs = [tensor.to(dtype).detach().requires_grad_() for tensor in (x, added, biases) if tensor is not None]
        parameters = [parameter for norm in copies for parameter in norm.parameters()]
        out = compute(*inputs, *[None] * (3 - len(inputs)), copies)
        wanted = [part.to(dtype) for part in towards]
        return [part.detach().double() for part in (*out, *torch.autograd.grad(out, inputs + parameters, wanted))]

    def plain(x, added, biases, norms):
        total = x + added if adds else x * 1
        total = total if biases is None else total + biases.sum(0)
        return total, *(norm(total) for norm in norms)

    def ours(x, added, biases, norms):
        return add_and_norm(x, added, () if biases is None else tuple(biases), tuple(norms), torch.float32)

    wanted = run(plain, torch.float64)
    return apart(run(ours, torch.float32), wanted)


def turn_errors(tokens, size, heads):
    qkv, angle, bias = draw(2, tokens, 3 * heads * size), draw(2, tokens, size // 2), draw(3 * heads * size)
    towards = [draw(2, heads, tokens, size) for _ in range(3)]

    def plain(qkv, cos, sin, bias, heads):
        q, k, v = (qkv + bias - bias.detach()).view(2, tokens, heads, 3 * size).transpose(1, 2).chunk(3, dim=-1)
        return rotate(q, (cos[:, None], sin[:, None])), rotate(k, (cos[:, None], sin[:, None])), v

    def run(compute, dtype):
        inputs = [qkv.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()]
        out = compute(inputs[0], angle.cos().to(dtype), angle.sin().to(dtype), inputs[1], heads)
        gradients = torch.autograd.grad(out, inputs, [part.to(dtype) for part in towards])
        return [part.detach().double() for part in (*out, *gradients)]

    return apart(run(turn_apart, torch.float32), run(plain, torch.float64))


def model_errors(config, dtype, models=1, kernel="none", by_token=False):
    """Return errors of the loss and its gradients: fused layers beside plain ones in fp32."""
    model, sample, ids = small_model(config, models)
    own = torch.Generator().manual_seed(0)
    for parameter in model.parameters():  # no bias and no norm as it begins
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=own)
    results = []
    for one in (by_kernels(model, kernel, by_token, dtype), model):
        if dtype == torch.float16:  # never with gradients
            with torch.no_grad():
                results.append([one(sample.tokens[:, :-1], ids[:, :, :-1])])
            continue
        loss = token_losses(one, sample, ids).sum()
        results.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
    return apart(*results)


without_bias = partial(torch.nn.LayerNorm, bias=False)
cases_of_norms = [
    (5, 48, 2, 2),
    (37, 64, None, 2),
    (3, 1500, 2, 2),
    (9, 64, 2, 1),
    (9, 64, 1, 1),
    (9, 64, 0, 2, without_bias),
    (5, 48, None, 1, torch.nn.RMSNorm),
    (37, 64, 0, 1, torch.nn.RMSNorm),
    (3, 1500, 1, 2, torch.nn.RMSNorm),
]
errors = {f"gelu {case}": gelu_errors(*case) for case in [(7, 50, 1), (40, 300, 1), (30, 130, 3), (40, 130, 1, False)]}
errors |= {
    f"gelu of {case}": gelu_product_errors(*case)
    for case in [(150, 64, 200, 1), (5, 8, 24, 1), (70, 96, 40, 1), (256, 64, 144, 2), (256, 64, 144, 2, False)]
}
errors |= {f"gate {case}": gate_errors(*case) for case in [(7, 50, 1, False), (40, 300, 1, True), (30, 130, 3, True)]}
errors |= {f"look up {shape}": look_up_errors(*shape) for shape in [(1, 30, 96, 200), (3, 5, 40, 130), (2, 70, 8, 3)]}
errors |= {f"norm {number}": norm_errors(*case) for number, case in enumerate(cases_of_norms)}
errors |= {f"turn {shape}": turn_errors(*shape) for shape in [(5, 32, 3), (70, 64, 2), (3, 128, 1)]}
small = {"layers": 2, "width": 64, "heads": 2}
exact, rough = {}, {}
for name, others in {
    "plain": {},
    "scaled": {"attention": ScaledSoftmaxConfig()},
    "ids": {"id_heads": 1, "norm_queries_and_keys": True},
    "grouped": {"kv_heads": 1},
}.items():
    model = TransformerConfig(**small | others)
    exact[name], rough[name] = model_errors(model, torch.float32), model_errors(model, torch.bfloat16)
    rough[f"{name}, fp16"] = model_errors(model, torch.float16)
for kernel in ("none", "short", "rotary"):
    plain = TransformerConfig(**small)
    exact[f"{kernel} kernel"] = model_errors(plain, torch.float32, kernel=kernel)
    exact[f"{kernel} kernel, stack"] = model_errors(plain, torch.float32, models=2, kernel=kernel)
    rough[f"{kernel} kernel, fp16"] = model_errors(plain, torch.float16, kernel=kernel)
for name, others in {
    "by token": {},
    "by token, one layer": {"layers": 1},
    "by token, scaled": {"attention": ScaledSoftmaxConfig()},
    "by token, ids": {"id_heads": 1},
}.items():
    model = TransformerConfig(**small | others)
    exact[name] = model_errors(model, torch.float32, by_token=True)
    own = "none" if model.id_heads else "short"
    exact[f"{name}, stack"] = model_errors(model, torch.float32, models=2, kernel=own, by_token=True)
    rough[name] = model_errors(model, torch.bfloat16, by_token=True)
    rough[f"{name}, fp16"] = model_errors(model, torch.float16, models=2, by_token=True)
for name, model in {
    "llama": LlamaConfig(**small),
    "llama, groups": LlamaConfig(**small, kv_heads=1),
    "sequential": TransformerConfig(**small, parallel_residual=False),
    "no biases": TransformerConfig(**small, biases=False),
    "llama, one layer": LlamaConfig(**small | {"layers": 1}),
    "llama, scaled": LlamaConfig(**small, attention=ScaledSoftmaxConfig()),
    "llama, biases": LlamaConfig(**small, biases=True),
    "gated": TransformerConfig(**small, gated=True),
    "rms": TransformerConfig(**small, norm="rms"),
}.items():
    kernel = "none" if model.groups < model.heads else "short"
    exact[f"{name}, by token, stack"] = model_errors(model, torch.float32, models=3, kernel=kernel, by_token=True)
    if name in ("llama", "llama, groups", "sequential", "no biases"):
        exact[name] = model_errors(model, torch.float32, kernel="none")
        rough[name] = model_errors(model, torch.bfloat16, by_token=True)
        rough[f"{name}, fp16"] = model_errors(model, torch.float16, models=2, kernel=kernel)
exact["llama, rotary kernel"] = model_errors(LlamaConfig(**small), torch.float32, kernel="rotary", by_token=True)
json.dump({"kernels": errors, "models": exact, "models in half precision": rough}, sys.stdout)
