"""Fused layers against the plain ones."""

from pathlib import Path

import pytest
import torch
from on_gpu import run_apart

from longreach.api import TransformerConfig, build_model
from longreach.engine.plan import Plan, choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.model.block import FeedForward

pytest.importorskip("triton")

SMALL = {"layers": 2, "width": 64, "heads": 2}


def new(**config):
    return build_model(TransformerConfig(**SMALL | config), 5, 0)


def plan_for(model, precision="bf16", **execution):
    """Plan for a GPU, but for the part that asks it how much memory it has."""
    return choose(model, ExecutionConfig(without=["large_chunks"], **execution), "cuda", precision)


def obstacle(model, **execution):
    """Return why the layers are not fused; empty where they are."""
    return plan_for(model, **execution).unused.get("fused_layers", "")


@pytest.mark.slow
def test_they_compute_what_plain_layers_do():
    errors = run_apart(Path(__file__).with_name("check_fused_layers.py"), interpreted=True)
    worst = {group: max(max(found) for found in of_group.values()) for group, of_group in errors.items()}
    assert [len(of_group) for of_group in errors.values()] == [27, 32, 27]
    assert worst["kernels"] < 1e-6, errors["kernels"]
    assert worst["models"] < 1e-5, errors["models"]
    assert worst["models in half precision"] < 0.05, errors["models in half precision"]
    assert max(max(found) for name, found in errors["models in half precision"].items() if "fp16" in name) < 0.002


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, ""),
        ({"id_heads": 1, "norm_queries_and_keys": True}, ""),
        ({"kv_heads": 1}, ""),
        ({"parallel_residual": False}, ""),
        ({"norm": "rms"}, ""),
        ({"gated": True}, ""),
        ({"biases": False}, ""),
        ({"loops": 2}, "the model loops over its layers"),
    ],
)
def test_they_are_used_for_layers_of_every_kind(config, reason):
    model = new(**config)
    for one in (model, stack_models([model, model])):
        found = obstacle(one)
        assert reason in found
        assert bool(reason) == bool(found)


@pytest.mark.parametrize(
    "watch",
    [
        lambda model: model.norm.register_forward_hook(lambda *_: None),
        lambda model: model.norm.register_forward_pre_hook(lambda *_: None),
        lambda model: model.blocks[1].attention.mix.register_forward_hook(lambda *_: None),
        lambda model: model.blocks[0].register_forward_pre_hook(lambda *_: None),
        lambda model: model.blocks[0].attention.register_full_backward_hook(lambda *_: None),
        lambda model: model.blocks[0].attention.register_full_backward_pre_hook(lambda *_: None),
        lambda model: torch.nn.modules.module.register_module_forward_hook(lambda *_: None),
    ],
)
def test_they_are_left_out_where_hooks_are_registered(watch):
    model = new()
    with watch(model):
        assert "a hook is registered" in obstacle(model)
    assert not obstacle(model)


def test_they_are_left_out_where_a_part_is_replaced():
    class Own(FeedForward):
        pass

    model = new()
    model.blocks[1].feed_forward.__class__ = Own
    assert obstacle(model) == "Own is a feed-forward net of another class"
    model = new()
    model.norm.forward = lambda x: x
    assert "a forward method is replaced" in obstacle(model)
    model = new()
    model.norm = torch.nn.Identity()
    assert obstacle(model) == "norms are neither layer norms nor RMS norms with weights"
    for other in (torch.nn.RMSNorm(64, eps=1e-5), torch.nn.LayerNorm(64, bias=False), torch.nn.LayerNorm(64, eps=0.1)):
        model.norm = other
        assert obstacle(model) == "norms differ in their class, biases or eps"
    model = new()
    model.blocks[1].attention.out = torch.nn.Identity()
    assert obstacle(model) == "a linear map is of another class"
    model = new(gated=True)
    model.blocks[1].feed_forward.gate.bias = None
    assert obstacle(model) == "only one map of a gated feed-forward net has a bias"
    model.blocks[0].attention.out.bias = model.blocks[1].feed_forward.up.bias = None
    assert not obstacle(model)


def test_products_with_gelu_are_for_tiles_of_one_model():
    from longreach.engine.fused import gelu_products

    rows, weight = torch.zeros(256, 64), torch.zeros(128, 64)
    assert gelu_products.fits(rows, weight)
    assert gelu_products.fits(rows, weight.expand(2, -1, -1))
    assert not gelu_products.fits(rows[:200], weight.expand(2, -1, -1))
    assert gelu_products.fits(rows[:200], weight)
    assert not gelu_products.fits(torch.zeros(256, 96), torch.zeros(2, 128, 96))
    assert gelu_products.fits(torch.zeros(256, 96), torch.zeros(128, 96))
    assert not gelu_products.fits(torch.zeros(256, 63), torch.zeros(128, 63))
    assert not gelu_products.fits(rows.bfloat16(), weight.bfloat16())  # which Triton's interpreter has no products for


def test_compiled_recomputed_and_looped_layers_are_not_fused():
    assert obstacle(new(), compile=True) == "layers are compiled"
    assert obstacle(new(), recompute=True) == "layers are recomputed"
    assert obstacle(new(loops=2)) == "the model loops over its layers"
    assert obstacle(new().double()) == "weights are in float64"
    gated = new(gated=True)
    assert plan_for(gated).unused["gelu_products"] == "hidden units are gated"


def test_only_half_precision_on_a_gpu_is_fused():
    model = new()
    assert plan_for(model, "bf16").training_model(model).fused_in == torch.bfloat16
    assert plan_for(model, "fp32").training_model(model).fused_in is None
    judge = plan_for(model, "fp32").new_judge(model, 9)
    assert judge.models.half.fused_in == torch.float16
    assert judge.exact.fused_in is judge.models.exact.fused_in is None
    assert not obstacle(model, deterministic=True)  # sums have a fixed order
    here = choose(model, ExecutionConfig(), "cpu", "bf16")
    assert here.unused["fused_layers"] == "needs a GPU"
    assert here.training_model(model).fused_in is None


def test_with_a_cache_they_are_plain():
    model = new()
    plan = Plan(device="cpu", precision="bf16", engine="auto", used=("fused_layers", "short_attention"), unused={})
    twin = plan.training_model(model)
    tokens, ids = torch.zeros(1, 3, dtype=torch.long), torch.arange(3)[None, None]
    # kernels would fail here, where Triton does not interpret them
    assert torch.equal(twin(tokens, ids, model.new_cache(1, 4)), model(tokens, ids, model.new_cache(1, 4)))


@pytest.mark.parametrize(("head_dim", "turns"), [(32, True), (24, False), (8, True)])
def test_angles_are_turned_by_a_kernel_where_its_blocks_fit(head_dim, turns):
    model = new(width=2 * head_dim)
    assert ("rotary_kernel" in plan_for(model).used) is turns
    assert choose(model, ExecutionConfig(), "cpu").unused["rotary_kernel"] == "needs a GPU"
    assert plan_for(model.double()).unused["rotary_kernel"] == "weights are in float64"
