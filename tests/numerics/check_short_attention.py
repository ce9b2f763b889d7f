"""Run by test_short_attention.py in a process of its own, where Triton interprets its kernels on the CPU: prints how
far they are from the reference."""

import json
import sys

import torch
from by_kernels import by_kernels, small_model
from losses import token_losses

from longreach.api import EqualIdsConfig, RopeConfig, ScaledSoftmaxConfig, TransformerConfig
from longreach.attention import Attention
from longreach.engine import exact_attention, layers
from longreach.engine.short_attention import Extras, short_attention
from longreach.positions.encodings import rotate


def reference(qkv, cos, sin, growth, heads):
    b, t, width = qkv.shape
    q, k, v = qkv.view(b, t, heads, width // heads).transpose(1, 2).chunk(3, dim=-1)
    rotation = None if cos is None else (cos[:, None], sin[:, None])
    q, k = rotate(q, rotation), rotate(k, rotation)
    if growth is not None:
        q = q * growth[..., None]
    visible = torch.arange(1, t + 1)[None]
    return Attention()(q, k, v, visible, None, None).transpose(1, 2).reshape(b, t, -1)


def kernel_errors(tokens, size, heads, turns, grows, precision=torch.float32):
    """Of values and of all gradients, beside fp64, as shares of the largest entry."""
    generator = torch.Generator().manual_seed(tokens)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    qkv = draw(3, tokens, 3 * heads * size)
    angle = draw(3, tokens, size // 2)
    cos, sin = (angle.cos(), angle.sin()) if turns else (None, None)
    growth = {"no": None, "alike": 1 + draw(1, heads, tokens).abs(), "each": 1 + draw(3, heads, tokens).abs()}[grows]
    towards = draw(3, tokens, heads * size)

    def run(compute, dtype):
        to = lambda x: None if x is None else x.to(dtype).detach()  # noqa: E731
        inputs = [x.requires_grad_() for x in (to(qkv), to(growth)) if x is not None]
        mixed = compute(inputs[0], to(cos), to(sin), inputs[1] if growth is not None else None, heads)
        return [mixed.detach(), *torch.autograd.grad(mixed, inputs, to(towards))]

    found, wanted = run(short_attention, precision), run(reference, torch.float64)
    return [float((a - b).abs().max() / b.abs().max().clamp(min=1e-3)) for a, b in zip(found, wanted, strict=True)]


def model_errors(models, levels=1, **changes):
    """Return errors of the loss and its gradients, of a whole model or a stack: the kernel beside the plain path."""
    config = TransformerConfig(
        **{"layers": 2, "width": 64, "heads": 2, "attention": ScaledSoftmaxConfig(scaled_heads=0.5), **changes}
    )
    model, sample, ids = small_model(config, models, levels)
    spread(model)
    calls = []
    layers.FastAttention._extras = counted(layers.FastAttention._extras, calls)
    results = []
    for one in (by_kernels(model, "short", dtype=None), model):
        loss = token_losses(one, sample, ids).sum()
        results.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
    assert len(calls) == config.layers
    return [float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in zip(*results, strict=True)]


def spread(model):
    """Move weights away from their initial values: weights of 1 and equal rows would hide mistakes."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def counted(compute, calls):
    def count(self, *given):
        calls.append(given)
        return compute(self, *given)

    return count


def bias_errors(models, precision=torch.float32):
    """Return errors of an attention whose kernel adds the projection's bias."""
    generator = torch.Generator().manual_seed(models)
    qkv, bias = (torch.randn(*shape, generator=generator) for shape in ((4, 9, 3 * 48), (models, 3 * 48)))
    added = (qkv.view(models, -1, 3 * 48) + bias[:, None]).view(qkv.shape)
    towards = torch.randn(4, 9, 48, generator=generator)
    results = []
    for read, extras in ((qkv, Extras(qkv_bias=bias)), (added, Extras())):
        read = read.clone().requires_grad_()
        mixed = short_attention(read, None, None, None, 2, extras)
        results.append([mixed.detach(), *torch.autograd.grad(mixed, read, towards)])
    return [float((a - b).abs().max() / b.abs().max()) for a, b in zip(*results, strict=True)]


def exact_errors(batch, heads, tokens, size):
    """Return errors of attention in fp32 by tensor cores, for queries and keys that lie apart in memory."""
    generator = torch.Generator().manual_seed(tokens)
    qkv = torch.randn(batch, tokens, heads, 3 * size, generator=generator, dtype=torch.float64).transpose(1, 2)
    visible = torch.arange(1, tokens + 1)[None]
    wanted = Attention()(*qkv.chunk(3, dim=-1), visible, None, None)
    with torch.no_grad():
        parts = qkv.float().chunk(3, dim=-1)
        assert exact_attention.serves(*parts)
        return [float((exact_attention.attend(*parts) - wanted).abs().max())]


shapes = [(5, 32, 2, True, "no"), (50, 32, 3, True, "alike"), (17, 64, 2, True, "each"), (100, 32, 1, False, "each")]
shapes += [(16, 128, 1, True, "no"), (1, 32, 2, True, "alike"), (64, 32, 1, False, "no")]
errors = {str(shape): kernel_errors(*shape) for shape in shapes}
errors |= {f"{models} model(s)": model_errors(models) for models in (1, 2)}
kinds = {
    "normalized": {"norm_queries_and_keys": True},
    "ID heads": {"norm_queries_and_keys": True, "id_heads": 1},
    "ID heads without norms": {"id_heads": 2, "heads": 4},
    "a part rotated": {"norm_queries_and_keys": True, "encoding": RopeConfig(fraction=0.25)},
    "an odd part rotated": {"encoding": RopeConfig(fraction=0.4), "width": 72, "heads": 2},
    "equal IDs": {"levels": 2, "heads": 8, "norm_queries_and_keys": True, "encoding": EqualIdsConfig(heads=5)},
}
errors |= {f"{kind}, {models}": model_errors(models, layers=1, **kinds[kind]) for kind in kinds for models in (1, 2)}
errors |= {f"bias, {models}": bias_errors(models) for models in (1, 2)}
exact = [(2, 3, 130, 32), (1, 2, 300, 64), (1, 1, 128, 16), (1, 2, 257, 32)]
errors |= {f"({shape}, exact)": exact_errors(*shape) for shape in exact}
errors["fp16"] = kernel_errors(*shapes[1], torch.float16)
json.dump(errors, sys.stdout)
