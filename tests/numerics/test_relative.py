"""Encodings that depend on queries and keys, and rotations for far keys, against their formulas."""

import math

import pytest
import torch
from catalogue import FAR_ROPES, label
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from longreach.api import (
    CopeConfig,
    NapeConfig,
    ReRopeConfig,
    RopeConfig,
    ScaledRopeConfig,
    SelfExtendConfig,
    ShawConfig,
    TransformerConfig,
    TransformerXlConfig,
    XposConfig,
    build_model,
)
from longreach.errors import BadInput
from longreach.positions.encodings import Shape, rotate

HEADS, DIM, TOKENS = 2, 8, 12
IDS = torch.tensor([[[0, 3, 4, 9, 9, 12, 20, 21, 40, 5, 6, 7]]])  # coupled IDs: they repeat and go back
SEEN = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()[None, None]
RELATIVE = [ShawConfig(max_distance=6), TransformerXlConfig(), CopeConfig(positions=4), NapeConfig(), XposConfig()]


def _vectors():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 1, HEADS, TOKENS, DIM, dtype=torch.float64, generator=generator).unbind(0)


def _encoding(config, levels=1):
    shape = Shape(HEADS * DIM, HEADS, (0,) * levels, 0)
    encoding = config.build(shape).double()
    for number, parameter in enumerate(encoding.parameters()):
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    return encoding.requires_grad_(False)


def _scores(config, ids=IDS):
    """As a layer makes them: turned queries and keys, and the bias."""
    encoding = _encoding(config)
    q, k = _vectors()
    origin = ids[:, :, :1]
    rotation = encoding.rotation(ids, origin)
    key_rotation = encoding.key_rotation(ids, origin)
    q, k = rotate(q, rotation), rotate(k, rotation if key_rotation is None else key_rotation)
    scores = q @ k.transpose(2, 3) / math.sqrt(DIM)
    bias = encoding.score_bias(ids, ids)
    if bias is not None:
        scores = scores + bias(slice(0, TOKENS), q, k, SEEN)
    return encoding, scores


def _pairs():
    for i in range(TOKENS):
        for j in range(i + 1):
            yield i, j, int(IDS[0, 0, i]), int(IDS[0, 0, j])


def _turned(x, angle_of_pair):
    """Each pair of dimensions (p, p + d/2) turned by its angle, one by one."""
    half = DIM // 2
    out = x.clone()
    for p in range(half):
        a = angle_of_pair(p)
        out[..., p] = x[..., p] * math.cos(a) - x[..., p + half] * math.sin(a)
        out[..., p + half] = x[..., p + half] * math.cos(a) + x[..., p] * math.sin(a)
    return out


def _rope_score(h, i, j, distance, frequency):
    q, k = _vectors()
    turned = _turned(q[0, h, i], lambda p: distance * frequency(p))
    return float(turned @ k[0, h, j]) / math.sqrt(DIM)


def _plain(p):
    return 10_000 ** (-2 * p / DIM)


def test_shaw_is_the_formula():
    encoding, scores = _scores(ShawConfig(max_distance=6))
    (table,) = encoding.tables
    q, k = _vectors()
    for i, j, a, b in _pairs():
        vector = table.weight[min(max(a - b, -6), 6) + 6]
        for h in range(HEADS):
            expected = q[0, h, i] @ (k[0, h, j] + vector) / math.sqrt(DIM)
            assert float(scores[0, h, i, j]) == pytest.approx(float(expected), rel=1e-9)


def test_transformer_xl_is_the_formula():
    encoding, scores = _scores(TransformerXlConfig())
    q, k = _vectors()
    width = HEADS * DIM
    (projection,) = encoding.projections
    for i, j, a, b in _pairs():
        angles = [(a - b) * 10_000 ** (-2 * f / width) for f in range(width // 2)]
        waves = torch.tensor([math.sin(x) for x in angles] + [math.cos(x) for x in angles], dtype=torch.float64)
        place = (projection.weight @ waves).view(HEADS, DIM)
        for h in range(HEADS):
            u, v = encoding.content.weight[h], encoding.place.weight[h]
            expected = (q[0, h, i] @ k[0, h, j] + q[0, h, i] @ place[h] + u @ k[0, h, j] + v @ place[h]) / math.sqrt(
                DIM
            )
            assert float(scores[0, h, i, j]) == pytest.approx(float(expected), rel=1e-9)


def test_cope_is_the_formula():
    encoding, scores = _scores(CopeConfig(positions=4))
    q, k = _vectors()
    for i, j, _, _ in _pairs():
        for h in range(HEADS):
            plain = [float(q[0, h, i] @ k[0, h, m]) / math.sqrt(DIM) for m in range(i + 1)]
            position = min(sum(1 / (1 + math.exp(-plain[m])) for m in range(j, i + 1)), 4.0)
            below = min(math.floor(position), 3)
            # as in the authors' code, positional logits are not divided by sqrt(d)
            low, high = (float(q[0, h, i] @ encoding.table.weight[n]) for n in (below, below + 1))
            expected = plain[j] + low + (high - low) * (position - below)
            assert float(scores[0, h, i, j]) == pytest.approx(expected, rel=1e-9)


def test_nape_is_the_formula():
    encoding = NapeConfig().build(Shape(32, 4, (0,), 0))
    bias = encoding.bias(IDS, IDS)
    for i, j, a, b in _pairs():
        assert bias[0, :, i, j].tolist() == pytest.approx([-abs(a - b), -abs(a - b) / 2, 0, 0])
    with pytest.raises(BadInput, match="halves"):
        NapeConfig().build(Shape(24, 3, (0,), 0))


def test_xpos_is_the_formula():
    _, scores = _scores(XposConfig(scale=30.0))
    q, k = _vectors()
    half = DIM // 2
    for i, j, a, b in _pairs():
        for h in range(HEADS):
            turned = _turned(q[0, h, i], lambda p, far=a - b: far * _plain(p))
            zeta = [(p / half + 0.4) / 1.4 for p in range(half)] * 2
            expected = sum(float(turned[p] * k[0, h, j, p]) * zeta[p] ** ((a - b) / 30) for p in range(DIM))
            assert float(scores[0, h, i, j]) == pytest.approx(expected / math.sqrt(DIM), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("leak", [0.0, 4.0])
def test_rerope_cuts_or_slows_distances_beyond_the_window(leak):
    _, scores = _scores(ReRopeConfig(window=6, leak=leak))
    for i, j, a, b in _pairs():
        distance = a - b
        if distance >= 6:
            distance = 6 + (distance - 6) / leak if leak else 6
        for h in range(HEADS):
            expected = _rope_score(h, i, j, distance, _plain)
            assert float(scores[0, h, i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_self_extend_groups_what_is_far():
    _, scores = _scores(SelfExtendConfig(window=6, group=4))
    for i, j, a, b in _pairs():
        distance = a - b if a - b < 6 else a // 4 + 6 - 6 // 4 - b // 4
        for h in range(HEADS):
            expected = _rope_score(h, i, j, distance, _plain)
            assert float(scores[0, h, i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_self_extend_counts_groups_from_the_first_id():
    """The authors' code groups from 0: its distances at IDs from 0 are ours at any first ID."""
    first = int(IDS[0, 0, 0])
    _, scores = _scores(SelfExtendConfig(window=6, group=4), IDS - first + 3)
    theirs_differ = False
    for i, j, a, b in _pairs():
        a, b = a - first, b - first
        far = a - b >= 6
        distance = a // 4 + 6 - 6 // 4 - b // 4 if far else a - b
        theirs_differ |= far and distance != (a + 3) // 4 + 6 - 6 // 4 - (b + 3) // 4
        for h in range(HEADS):
            expected = _rope_score(h, i, j, distance, _plain)
            assert float(scores[0, h, i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert theirs_differ


def test_static_ntk_raises_the_base():
    _, scores = _scores(ScaledRopeConfig(method="ntk", factor=4.0, trained_to=10))
    base = 10_000 * 4 ** (DIM / (DIM - 2))
    for i, j, a, b in _pairs():
        for h in range(HEADS):
            expected = _rope_score(h, i, j, a - b, lambda p: base ** (-2 * p / DIM))
            assert float(scores[0, h, i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_dynamic_ntk_raises_the_base_as_far_as_a_query_has_seen():
    _, scores = _scores(ScaledRopeConfig(method="dynamic", factor=8.0, trained_to=10))
    for i, j, a, b in _pairs():
        seen = max(IDS[0, 0, : i + 1].tolist())
        factor = 1 if seen <= 10 else 2 if seen <= 20 else 4
        base = 10_000 * factor ** (DIM / (DIM - 2))
        for h in range(HEADS):
            expected = _rope_score(h, i, j, a - b, lambda p, base=base: base ** (-2 * p / DIM))
            assert float(scores[0, h, i, j]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("method", ["linear", "yarn", "llama3", "longrope"])
def test_scaled_rotations_are_those_of_hugging_face(method):
    settings = {"rope_type": method, "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 64}
    if method == "llama3":
        settings |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    factors = [1.0, 1.5, 2.5, 8.0]
    if method == "longrope":
        settings |= {"short_factor": [1.0] * 4, "long_factor": factors}
    theirs = LlamaRotaryEmbedding(
        LlamaConfig(
            hidden_size=HEADS * DIM, num_attention_heads=HEADS, max_position_embeddings=512, rope_parameters=settings
        )
    )
    ids = torch.arange(0, 512, 7)
    cos, sin = theirs(torch.zeros(1, 1, 1), ids[None])
    ours = ScaledRopeConfig(
        method=method, factor=8.0, trained_to=64, long_factors=factors if method == "longrope" else []
    )
    found = ours.build(Shape(HEADS * DIM, HEADS, (0,), 0)).rotation(
        ids[None, None], torch.zeros(1, 1, 1, dtype=torch.long)
    )
    # theirs has every pair twice
    torch.testing.assert_close(found[0][:, 0].repeat(1, 1, 2), cos, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1][:, 0].repeat(1, 1, 2), sin, rtol=1e-4, atol=1e-4)


LEAVE_NEAR_KEYS_ALONE = [c for c in FAR_ROPES if not isinstance(c, ScaledRopeConfig) or c.method == "dynamic"]


@pytest.mark.parametrize("config", LEAVE_NEAR_KEYS_ALONE, ids=label)
def test_what_training_has_seen_is_as_before(config):
    """Within the window, or with IDs up to those of training, methods that leave near keys alone change nothing."""
    tokens, ids = torch.arange(4)[None], torch.arange(4)[None, None]
    models = [
        build_model(TransformerConfig(layers=2, width=32, heads=2, encoding=encoding), 11, 0).eval()
        for encoding in (config, RopeConfig())
    ]
    torch.testing.assert_close(models[0](tokens, ids), models[1](tokens, ids), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", [*RELATIVE, *FAR_ROPES], ids=label)
@given(shift=st.integers(1, 5_000_000), seed=st.integers(0, 100))
def test_shifting_all_ids_changes_nothing(config, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 300, (2, 1, 9), generator=generator)
    tokens = torch.randint(0, 11, (2, 9), generator=generator)
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, encoding=config), 11, 0).eval()
    assert torch.equal(model(tokens, ids), model(tokens, ids + shift))


@pytest.mark.parametrize("config", [*RELATIVE, *FAR_ROPES], ids=label)
def test_gradients_are_finite(config):
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, encoding=config), 20, 0)
    model(torch.arange(TOKENS)[None], IDS).square().sum().backward()
    for parameter in model.encoding.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.any()


@pytest.mark.parametrize(
    ("config", "settings", "complaint"),
    [
        (ShawConfig, {"max_distance": 0}, "max_distance must be at least 1, got 0"),
        (TransformerXlConfig, {"base": 1.0}, "base must be above 1"),
        (CopeConfig, {"positions": 0}, "positions must be at least 1, got 0"),
        (XposConfig, {"scale": 0.0}, "scale must be positive"),
        (XposConfig, {"spectrum": "random"}, "no order to go by"),
        (SelfExtendConfig, {"group": 0}, "group must be at least 1, got 0"),
        (SelfExtendConfig, {"window": 0}, "window must be at least 1, got 0"),
        (ReRopeConfig, {"leak": 0.5}, "leak must be 0 or at least 1"),
        (ScaledRopeConfig, {"factor": 0.5}, "factor must be at least 1"),
        (ScaledRopeConfig, {"trained_to": 1}, "trained_to must be at least 2, got 1"),
        (ScaledRopeConfig, {"spectrum": "random"}, "no order to go by"),
        (ScaledRopeConfig, {"method": "longrope"}, "belongs to longrope"),
        (ScaledRopeConfig, {"long_factors": [1.0]}, "belongs to longrope"),
    ],
)
def test_settings_that_mean_nothing_are_refused(config, settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        config(**settings)
    with pytest.raises(BadInput, match="one factor for each of 8 pairs"):
        ScaledRopeConfig(method="longrope", long_factors=[1.0]).build(Shape(32, 2, (0,), 0))
