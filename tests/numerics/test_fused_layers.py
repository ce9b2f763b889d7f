"""Fused layers against the plain ones."""

from pathlib import Path

import pytest
import torch
from on_gpu import OnGpu, run_apart

from longreach.api import TransformerConfig, build_model
from longreach.engine.stacking import stack_models
from longreach.model.block import FeedForward, _may_launch

pytest.importorskip("triton")


def test_they_compute_what_plain_layers_do():
    errors = run_apart(Path(__file__).with_name("check_fused_layers.py"), interpreted=True)
    worst = {group: max(max(found) for found in of_group.values()) for group, of_group in errors.items()}
    assert [len(of_group) for of_group in errors.values()] == [17, 18, 19]
    assert worst["kernels"] < 1e-6, errors["kernels"]
    assert worst["models"] < 1e-5, errors["models"]
    assert worst["models in half precision"] < 0.05, errors["models in half precision"]
    assert max(max(found) for name, found in errors["models in half precision"].items() if "fp16" in name) < 0.002


@pytest.mark.parametrize(
    ("config", "fits"),
    [
        ({}, True),
        ({"id_heads": 1, "norm_queries_and_keys": True}, True),
        ({"kv_heads": 1}, True),
        ({"parallel_residual": False}, False),
        ({"norm": "rms"}, False),
        ({"gated": True}, False),
        ({"biases": False}, False),
    ],
)
def test_they_are_used_for_layers_of_their_kind(config, fits):
    from longreach.engine.fused import fits as fit

    models = [
        build_model(TransformerConfig(**{"layers": 2, "width": 64, "heads": 2} | config), 5, seed) for seed in (0, 1)
    ]
    assert fit(models[0].blocks, models[0].norm) is fits
    stack = stack_models(models)
    assert fit(stack.blocks, stack.norm) is fits


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
def test_they_are_left_out_where_someone_watches(watch):
    from longreach.engine.fused import fits

    model = build_model(TransformerConfig(layers=2, width=64, heads=2), 5, 0)
    with watch(model):
        assert not fits(model.blocks, model.norm)
    assert fits(model.blocks, model.norm)


def test_they_are_left_out_where_a_part_is_replaced():
    from longreach.engine.fused import fits

    class Own(FeedForward):
        pass

    model = build_model(TransformerConfig(layers=2, width=64, heads=2), 5, 0)
    model.blocks[1].feed_forward.__class__ = Own
    assert not fits(model.blocks, model.norm)
    model = build_model(TransformerConfig(layers=2, width=64, heads=2), 5, 0)
    model.norm.forward = lambda x: x
    assert not fits(model.blocks, model.norm)


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


def test_compiled_layers_are_not_fused():
    model = build_model(TransformerConfig(layers=2, width=64, heads=2), 5, 0)
    assert model.may_fuse
    assert not model.compiled().may_fuse


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_they_are_as_close_to_fp32_as_plain_ones():
    found = run_apart(Path(__file__).with_name("check_fused_layers_on_gpu.py"))
    assert len(found) == 32
    for case, error in found.items():
        assert error["fused"] < 1.2 * error["plain"] < 0.02, (case, error)


def test_only_half_precision_on_a_gpu_is_fused(monkeypatch):
    model = build_model(TransformerConfig(layers=2, width=64, heads=2), 5, 0)
    looped = build_model(TransformerConfig(layers=2, width=64, heads=2, loops=2), 5, 0)
    here = torch.zeros(1, 3, 64)
    there = here.as_subclass(OnGpu)
    assert not model._fuses(there, None)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    assert model._fuses(there, None)
    with monkeypatch.context() as exactly:  # sums have a fixed order
        exactly.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
        assert model._fuses(there, None)
    assert not model._fuses(here, None)
    assert not looped._fuses(there, None)
    assert not model._fuses(there, model.new_cache(1, 4))
    with torch.no_grad():
        assert model._fuses(there, None)
    model.recompute = True
    assert not model._fuses(there, None)
    model.recompute, model.may_fuse = False, False
    assert not model._fuses(there, None)
    model.may_fuse = True
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.float16)
    assert not model._fuses(there, None)
    with torch.no_grad():
        assert model._fuses(there, None)


@pytest.mark.parametrize(("head_dim", "turns"), [(32, True), (24, False), (8, True)])
def test_angles_are_turned_by_a_kernel_where_its_blocks_fit(head_dim, turns):
    projected = torch.zeros(1, 3, 6 * head_dim)
    assert _may_launch(projected.as_subclass(OnGpu), head_dim // 2) is turns
    assert not _may_launch(projected, head_dim // 2)
    assert not _may_launch(projected.double().as_subclass(OnGpu), head_dim // 2)


def test_small_tables_get_their_gradient_from_a_product(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    from longreach.model import embedding
    from longreach.model.embedding import look_up

    generator = torch.Generator().manual_seed(0)
    for shape in ((7, 5), (3, 7, 5)):
        table = torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        index = torch.randint(7, (6, 4), generator=generator)
        if len(shape) == 3:  # each model has two of the rows and its part of the table
            index = index + 7 * torch.arange(3).repeat_interleave(2)[:, None]
        towards = torch.randn(6, 4, 5, generator=generator, dtype=torch.float64)
        found = look_up(index, table)
        assert found.grad_fn.name().startswith("_LookUp")
        plain = torch.nn.functional.embedding(index, table.flatten(0, -2))
        torch.testing.assert_close(found, plain)
        wanted = torch.autograd.grad(plain, table, towards)
        torch.testing.assert_close(torch.autograd.grad(found, table, towards), wanted)
    large = torch.zeros(1000, 5, requires_grad=True)
    assert "Embedding" in look_up(index, large).grad_fn.name()
    monkeypatch.setattr(embedding, "_MOST_NUMBERS", 7 * index.numel() - 1)
    assert "Embedding" in look_up(index, table).grad_fn.name()
