"""Encodings that add to the scores: against Hugging Face's functions, or the formula in loops."""

import math

import pytest
import torch
from catalogue import BIASES, label
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from longreach.api import AlibiConfig, FireConfig, KerpleConfig, T5Config, TransformerConfig, build_model
from longreach.positions.encodings import Shape
from longreach.positions.encodings.alibi import Alibi
from longreach.positions.encodings.t5 import bucket

IDS = torch.tensor([[[3, 9, 9, 1, 400, 401, 3]], [[0, 1, 2, 3, 4, 5, 6]]])
every_bias = pytest.mark.parametrize("config", BIASES, ids=label)


def _model(config, levels=1, heads=4):
    settings = TransformerConfig(layers=2, width=32, heads=heads, encoding=config)
    model = build_model(settings, 11, 0, level_sizes=(0,) * levels).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # biases that make a difference
        for name, parameter in model.encoding.named_parameters():
            if name.endswith(("out", "offset", "weight")):
                parameter.normal_(generator=generator)
    return model


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12])
def test_alibi_has_the_published_slopes(heads):
    theirs = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)[:, 0, 1]  # slope times position 1
    torch.testing.assert_close(Alibi(heads).slopes(IDS.device), theirs)


def test_alibi_falls_with_the_distance_of_ids():
    bias = AlibiConfig().build(Shape(8, 2, (0,), 0)).bias(IDS, IDS)
    for row, head, i, j in ((0, 0, 4, 3), (0, 1, 3, 4), (1, 1, 6, 1), (0, 0, 1, 2)):
        assert bias[row, head, i, j] == -Alibi(2).slopes(IDS.device)[head] * abs(int(IDS[row, 0, i] - IDS[row, 0, j]))


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 60), (8, 1000)])
def test_t5_buckets_are_hugging_faces(both_ways, buckets, max_distance):
    config = T5Config(buckets=buckets, max_distance=max_distance, both_ways=both_ways)
    distance = torch.arange(-1500, 1500)
    theirs = T5Attention._relative_position_bucket(-distance, both_ways, buckets, max_distance)  # key minus query
    assert torch.equal(bucket(distance, config), theirs)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_is_the_formula(kernel):
    encoding = _model(KerpleConfig(kernel=kernel)).encoding
    encoding.requires_grad_(False)
    bias = encoding.bias(IDS, IDS)
    for row, head, i, j in ((0, 0, 4, 3), (0, 3, 3, 4), (1, 1, 6, 1), (0, 2, 1, 2)):
        far = abs(int(IDS[row, 0, i] - IDS[row, 0, j]))
        raw_a, raw_b = float(encoding.raw_a[0, head]), float(encoding.raw_b[0, head])
        a = math.log1p(math.exp(raw_a))
        if kernel == "log":
            expected = -a * math.log1p(math.log1p(math.exp(raw_b)) * far)
        else:
            expected = -a * far ** (2 / (1 + math.exp(-raw_b))) if far else 0.0
        assert float(bias[row, head, i, j]) == pytest.approx(expected, rel=1e-5)


def test_fire_is_the_formula():
    model = _model(FireConfig(threshold=5.0))
    model.requires_grad_(False)
    (net,) = model.encoding.levels
    bias = model.encoding.bias(IDS, IDS)
    for row, head, i, j in ((0, 0, 4, 3), (0, 3, 3, 1), (1, 1, 6, 1), (1, 2, 2, 0), (0, 2, 1, 2)):
        ids = IDS[row, 0].tolist()
        longest = max(abs(ids[i] - ids[0]), 5.0)
        near = math.log1p(0.1 * abs(ids[i] - ids[j])) / (math.log1p(0.1 * longest) + 1e-6)
        hidden = (net.slope * near + net.shift).relu()
        expected = float((net.out[:, head] * hidden).sum() + net.offset[head])
        assert float(bias[row, head, i, j]) == pytest.approx(expected, rel=1e-4)


@every_bias
@given(shift=st.integers(1, 5_000_000), seed=st.integers(0, 100))
def test_shifting_all_ids_changes_nothing(config, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 1000, (2, 1, 9), generator=generator)
    tokens = torch.randint(0, 11, (2, 9), generator=generator)
    model = _model(config)
    assert torch.equal(model(tokens, ids), model(tokens, ids + shift))


@every_bias
def test_gradients_are_finite(config):
    model = _model(config)
    model(torch.arange(7).expand(2, 7), IDS).square().sum().backward()
    for parameter in model.encoding.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_too_few_buckets_and_distances_are_refused():
    for wrong in ({"buckets": 3}, {"buckets": 6, "both_ways": True}, {"buckets": 0}):
        with pytest.raises(ValueError, match="buckets must be even"):
            T5Config(**wrong)
    with pytest.raises(ValueError, match="must be above 32, the buckets"):
        T5Config(max_distance=32)
    for wrong in ({"c": 0.0}, {"threshold": -1.0}, {"hidden": 0}):
        with pytest.raises(ValueError, match="must be positive"):
            FireConfig(**wrong)


def test_fire_begins_without_a_bias_and_can_learn_one():
    model = build_model(TransformerConfig(layers=1, width=32, heads=4, encoding=FireConfig()), 11, 0)
    assert not model.encoding.bias(IDS, IDS).any()
    model(torch.arange(7).expand(2, 7), IDS).square().sum().backward()
    (net,) = model.encoding.levels
    assert (net.out.grad.abs() > 0).any(1).sum() > 8


@every_bias
def test_bf16_training_tells_all_distances_apart_as_evaluation_does(config):
    """Which distance is which must not hang on the precision of matrix products."""
    encoding = _model(config).encoding
    ids = torch.arange(60).expand(1, 1, 60)
    exact = encoding.bias(ids, ids)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoding.bias(ids, ids), exact)
