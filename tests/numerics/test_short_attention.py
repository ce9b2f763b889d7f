"""The kernel for short sequences against the plain path."""

from pathlib import Path

import pytest
import torch
from on_gpu import OnGpu, run_apart

from longreach.api import ScaledSoftmaxConfig, SlidingWindowConfig, TransformerConfig, build_model

pytest.importorskip("triton")


def test_the_kernel_computes_what_the_plain_path_does():
    errors = run_apart(Path(__file__).with_name("check_short_attention.py"), interpreted=True)
    assert max(errors.pop("fp16")) < 1e-2
    assert len(errors) == 9
    assert max(max(found) for found in errors.values()) < 1e-5, errors


@pytest.mark.parametrize(
    ("config", "tokens", "dtype", "fits"),
    [
        ({}, 128, torch.bfloat16, True),
        ({}, 129, torch.bfloat16, False),
        ({}, 128, torch.float16, True),
        ({}, 64, torch.float32, True),
        ({}, 65, torch.float32, False),
        ({"heads": 4}, 20, torch.bfloat16, False),  # heads of 16 dimensions
        ({"attention": ScaledSoftmaxConfig()}, 20, torch.bfloat16, True),
        ({"attention": SlidingWindowConfig()}, 20, torch.bfloat16, False),
        ({"norm_queries_and_keys": True}, 20, torch.bfloat16, False),
        ({"id_heads": 1}, 20, torch.bfloat16, False),
        ({"norm": "rms", "gated": True, "biases": False}, 20, torch.bfloat16, True),
        ({"kv_heads": 1}, 20, torch.bfloat16, False),  # another layout
    ],
)
def test_it_is_used_where_it_computes_the_same(config, tokens, dtype, fits):
    model = build_model(TransformerConfig(**{"layers": 1, "width": 64, "heads": 2} | config), 5, 0)
    ids = torch.arange(tokens)[None, None]
    projected = torch.zeros(1, tokens, model.blocks[0].attention.qkv.out_features, dtype=dtype).as_subclass(OnGpu)
    assert model.blocks[0].attention.fits_one_kernel(projected, model.encoding.rotation(ids, ids[:, :, :1])) is fits


def test_it_is_left_out_where_someone_watches():
    model = build_model(TransformerConfig(layers=1, width=64, heads=2), 5, 0)
    layer, projected = model.blocks[0].attention, torch.zeros(1, 5, 3 * 64).as_subclass(OnGpu)
    assert layer.fits_one_kernel(projected, None)
    with layer.mix.register_forward_hook(lambda *_: None):
        assert not layer.fits_one_kernel(projected, None)
    assert not layer.fits_one_kernel(torch.zeros(1, 5, 3 * 64), None)
