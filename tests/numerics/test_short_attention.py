"""The kernel for short sequences against the plain path."""

from pathlib import Path

import pytest
import torch
from on_gpu import run_apart

from longreach.api import (
    AlibiConfig,
    EqualIdsConfig,
    NoEncodingConfig,
    RopeConfig,
    ScaledSoftmaxConfig,
    SlidingWindowConfig,
    TransformerConfig,
    XposConfig,
    build_model,
)
from longreach.engine.plan import Plan, choose
from longreach.execution import ExecutionConfig

pytest.importorskip("triton")


def new(**config):
    return build_model(TransformerConfig(**{"layers": 1, "width": 64, "heads": 2} | config), 5, 0)


def test_the_kernel_computes_what_the_plain_path_does():
    errors = run_apart(Path(__file__).with_name("check_short_attention.py"), interpreted=True)
    assert max(errors.pop("fp16")) < 1e-2
    assert len(errors) == 27
    # gradients of whole models are sums of terms that nearly cancel
    limits = {name: 1e-5 if name.startswith(("(", "bias")) else 1e-4 for name in errors}
    assert not {name: found for name, found in errors.items() if max(found) >= limits[name]}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, ""),
        ({"heads": 4}, ""),
        ({"width": 60, "heads": 4, "encoding": NoEncodingConfig()}, "heads have 15 dimensions"),
        ({"width": 260, "heads": 2}, "heads have 130 dimensions"),
        ({"attention": ScaledSoftmaxConfig()}, ""),
        ({"attention": SlidingWindowConfig()}, "SlidingWindow is not a softmax over all keys before"),
        ({"norm_queries_and_keys": True}, ""),
        ({"id_heads": 1}, ""),
        ({"encoding": RopeConfig(fraction=0.5)}, ""),
        ({"encoding": EqualIdsConfig()}, ""),
        ({"encoding": XposConfig()}, "keys are turned by other angles than queries"),
        ({"norm": "rms", "gated": True, "biases": False}, ""),
        ({"kv_heads": 1}, "heads share keys and values"),  # another layout
        ({"encoding": AlibiConfig()}, "scores have a bias"),
    ],
)
def test_it_is_used_where_it_computes_the_same(config, reason):
    assert choose(new(**config), ExecutionConfig(), "cuda").unused.get("short_attention", "") == reason
    assert choose(new(**config), ExecutionConfig(), "cpu").unused["short_attention"] == "needs a GPU"


def test_it_is_left_out_where_hooks_are_registered():
    model = new()
    with model.blocks[0].attention.mix.register_forward_hook(lambda *_: None):
        assert "a hook is registered" in choose(model, ExecutionConfig(), "cuda").unused["short_attention"]


@pytest.mark.parametrize(
    ("tokens", "dtype", "used"),
    [
        (128, torch.bfloat16, True),
        (129, torch.bfloat16, False),
        (128, torch.float16, True),
        (64, torch.float32, True),
        (65, torch.float32, False),
    ],
)
def test_long_sequences_masks_and_caches_are_left_to_the_plain_path(tokens, dtype, used, monkeypatch):
    from longreach.engine import short_attention

    calls = []

    def kernel(qkv, *others):
        calls.append(qkv.shape[1])
        return qkv[..., : qkv.shape[2] // 3].contiguous()

    monkeypatch.setattr(short_attention, "short_attention", kernel)
    model = new().to(dtype)
    plan = Plan(device="cpu", precision="fp32", engine="auto", used=("short_attention",), unused={})
    twin = plan.test_model(model)
    read, ids = torch.zeros(1, tokens, dtype=torch.long), torch.arange(tokens)[None, None]
    twin(read, ids)
    assert calls == ([tokens] if used else [])
    twin(read, ids, keep=torch.ones(1, tokens, tokens, dtype=torch.bool))
    twin(read, ids, model.new_cache(1, tokens))
    assert len(calls) == used
