"""Fast attention against the formula written out."""

import math
from functools import partial

import pytest
import torch
from catalogue import ATTENTIONS, label

from longreach.api import (
    AsEntmaxConfig,
    EntmaxConfig,
    FireConfig,
    LearnedConfig,
    NoEncodingConfig,
    RopeConfig,
    ScaledSoftmaxConfig,
    SinusoidalConfig,
    SlidingWindowConfig,
    SoftmaxConfig,
    StickBreakingConfig,
    TopKConfig,
    TransformerConfig,
    build_model,
)
from longreach.attention import Attention
from longreach.errors import BadInput
from longreach.evaluation.look_inside import watch
from longreach.positions.encodings import Bias, Shape


def _naive(q, k, v, scale, weigh, bias=None):
    """Loops over everything; query i sees keys up to i."""
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                scores = torch.stack([q[b, h, i] @ k[b, h, j] / math.sqrt(q.shape[3]) for j in range(i + 1)])
                scores = scores * scale(h, i + 1)
                if bias is not None:
                    scores = scores + bias[b, h, i, : i + 1]
                out[b, h, i] = weigh(scores) @ v[b, h, : i + 1]
    return out


def _attend(attention, q, *rest):
    """With queries rescaled as a layer does; states are any."""
    return attention(attention.rescale(q, rest[2], q.transpose(1, 2).flatten(2)), *rest)


def _largest(scores):
    """Softmax over the three largest."""
    edge = scores.sort(descending=True).values[min(3, len(scores)) - 1]
    return scores.masked_fill(scores < edge, -math.inf).softmax(0)


def _stick(scores):
    weights, left = torch.zeros_like(scores), 1.0
    for j in reversed(range(len(scores))):
        weights[j] = left * scores[j].sigmoid()
        left = left * (1 - scores[j].sigmoid())
    return weights


def _window(scores):
    """The last three and the first."""
    near = torch.arange(len(scores)) >= len(scores) - 3
    near[0] = True
    return scores.masked_fill(~near, -math.inf).softmax(0)


def _threshold(power, scores):
    """[(alpha - 1) score - tau]_+ ^ (1 / (alpha - 1)), tau found by halving: alpha is 1 + 1 / power."""
    scaled = scores / power
    low, high = scaled.max() - 1, scaled.max()
    for _ in range(100):
        tau = (low + high) / 2
        low, high = (tau, high) if ((scaled - tau).clamp(min=0) ** power).sum() > 1 else (low, tau)
    return (scaled - low).clamp(min=0) ** power


SOFTMAX = partial(torch.softmax, dim=0)
FORMULAS = [
    (SoftmaxConfig(), SOFTMAX),
    (ScaledSoftmaxConfig(), SOFTMAX),
    (ScaledSoftmaxConfig(offset=0.0), SOFTMAX),
    (TopKConfig(keep=3), _largest),
    (StickBreakingConfig(), _stick),
    (SlidingWindowConfig(window=3, sinks=1), _window),
    (ScaledSoftmaxConfig(scaled_heads=0.7), SOFTMAX),
    (EntmaxConfig(), partial(_threshold, 2)),
    (EntmaxConfig(alpha=2.0), partial(_threshold, 1)),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("config", "weigh"), [pytest.param(*pair, id=label(pair[0])) for pair in FORMULAS])
def test_attention_is_the_formula(config, weigh, with_bias):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(2, 3, 7, 7, generator=generator, dtype=torch.float64) if with_bias else None
    attention: Attention = config.build(Shape(24, 3, (0,), 0)).double()
    slope = torch.tensor([0.7, -0.3, 0.1], dtype=torch.float64)
    if isinstance(config, ScaledSoftmaxConfig):
        attention.slope.data.copy_(slope)
        still = config.scaled_heads < 1
        scale = lambda h, n: 1.0 if still and h == 0 else config.offset + slope[h] * math.log(n)  # noqa: E731
    else:
        scale = lambda h, n: 1.0  # noqa: E731
    visible = torch.arange(1, 8)[None]
    given = None if bias is None else Bias(lambda part: bias[:, :, part])
    found = _attend(attention, q, k, v, visible, None, given)
    torch.testing.assert_close(found, _naive(q, k, v, scale, weigh, bias), rtol=1e-6, atol=1e-6)
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool).tril()
    torch.testing.assert_close(_attend(attention, q, k, v, visible, mask, given), found, rtol=1e-6, atol=1e-6)
    last = _attend(
        attention, q[:, :, 6:], k, v, visible[:, 6:], mask[:, :, 6:], given and Bias(lambda part: bias[:, :, 6:])
    )
    torch.testing.assert_close(last, found[:, :, 6:], rtol=1e-6, atol=1e-6)  # one query, as in generation


def test_rounding_breaks_no_tie_of_top_k():
    """Keys of equal tokens have equal scores up to the order of sums: all of them stay, whichever comes out ahead."""
    attention = TopKConfig(keep=2).build(Shape(8, 1, (0,), 0))
    scores = torch.tensor([[[[8.0, -40.0, 3.0, 3.0, 3.0, 2.0]]]])
    exact = attention.weigh(scores)
    assert (exact > 0).tolist() == [[[[True, False, True, True, True, False]]]]
    for ulps in ([0, 0, 1, 0, -1, 0], [0, 0, -3, 2, 0, 0]):
        rounded = scores * (1 + torch.tensor(ulps) * torch.finfo(torch.float32).eps)
        torch.testing.assert_close(attention.weigh(rounded), exact)
    few = scores.masked_fill(torch.arange(6) > 0, -torch.inf)  # fewer keys than are kept
    assert attention.weigh(few).tolist() == [[[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]]]


@pytest.mark.parametrize("as_released", [False, True])
def test_asentmax_lets_each_state_say_how_scores_grow(as_released):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    states = torch.randn(2, 7, 24, generator=generator, dtype=torch.float64)
    attention = AsEntmaxConfig(as_released=as_released).build(Shape(24, 3, (0,), 0)).double()
    attention.requires_grad_(False)
    assert (attention.speed.bias is None) == (attention.bend.bias is None) == as_released
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    visible = torch.arange(1, 8)[None]
    found = attention(attention.rescale(q, visible, states), k, v, visible, None, None)
    grown = q.clone()
    for b in range(2):
        for i in range(1, 7):  # the first token sees itself alone
            seen = i + 2 if as_released else i + 1  # the authors' code computes log(n + 1)
            for h in range(3):
                biases = (0.0, 0.0) if as_released else (attention.speed.bias[h], attention.bend.bias[h])
                speed = math.log1p(math.exp(attention.speed.weight[h] @ states[b, i] + biases[0]))
                bend = 2 * math.tanh(attention.bend.weight[h] @ states[b, i] + biases[1])
                grown[b, h, i] = q[b, h, i] * (1 + speed * math.log(seen) ** bend)
    expected = _naive(grown, k, v, lambda h, n: 1.0, partial(_threshold, 2))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="start has no meaning"):
        AsEntmaxConfig(start=0.5)


def test_a_share_that_leaves_no_head_is_refused():
    with pytest.raises(BadInput, match="leaves none of 2 heads"):
        ScaledSoftmaxConfig(scaled_heads=0.2).build(Shape(16, 2, (0,), 0))
    with pytest.raises(ValueError, match="scaled_heads must be in"):
        ScaledSoftmaxConfig(scaled_heads=0.0)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=label)
def test_gradients_are_finite(attention):
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, attention=attention), 9, 0)
    tokens = torch.randint(1, 9, (2, 12), generator=torch.Generator().manual_seed(0))
    model.all_logits(tokens, torch.arange(12).expand(2, 1, 12)).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=label)
def test_padding_on_the_right_and_later_tokens_change_nothing(attention):
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, attention=attention), 9, 0).eval()
    tokens = torch.randint(1, 9, (1, 10), generator=torch.Generator().manual_seed(0))
    ids = torch.arange(10)[None, None]
    short = model(tokens[:, :6], ids[:, :, :6])
    changed = tokens.clone()
    changed[:, 6:] = 0
    torch.testing.assert_close(model(changed, ids)[:, :6], short, rtol=1e-5, atol=1e-6)


def test_every_earlier_token_is_reachable_whatever_the_ids():
    """Jumps in the IDs must not cut attention into blocks."""
    model = build_model(TransformerConfig(layers=1, width=32, heads=2), 9, 0).eval()
    tokens = torch.randint(1, 9, (1, 8), generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[[0, 1, 2, 500, 501, 7, 7, 900]]])
    embedded = []
    model.embed.register_forward_hook(lambda module, args, output: embedded.append(output.requires_grad_()))
    model(tokens, ids)[0, -1].sum().backward()
    gradient = torch.autograd.grad(model(tokens, ids)[0, -1, 0], embedded[-1])[0]
    assert (gradient.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("changes", [{"attention": TopKConfig(keep=3)}, {"encoding": FireConfig()}], ids=label)
def test_queries_in_parts_are_queries_at_once(monkeypatch, changes):
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, **changes), 9, 0).eval()
    tokens = torch.randint(1, 9, (2, 10), generator=torch.Generator().manual_seed(0))
    ids = torch.arange(10).expand(2, 1, 10)
    whole = model(tokens, ids)
    monkeypatch.setattr("longreach.attention.base._SCORES", 100)
    torch.testing.assert_close(model(tokens, ids), whole)


def test_a_crowd_cannot_dilute_the_few_largest_scores():
    """Ten thousand keys a little below the best three: they are as good as absent."""
    attention = TopKConfig(keep=3).build(Shape(8, 1, (0,), 0))
    k = torch.zeros(1, 1, 10_000, 8)
    k[:, :, 5:8, 0] = 1.0
    v = torch.zeros(1, 1, 10_000, 1).index_fill(2, torch.arange(5, 8), 1.0)
    q = torch.ones(1, 1, 1, 8)
    seen = torch.ones(1, 1, 1, 10_000, dtype=torch.bool)
    with torch.no_grad():
        mixed = _attend(attention, q, k, v.expand(-1, -1, -1, 8), torch.tensor([[10_000]]), seen, None)
    assert torch.equal(mixed, torch.ones_like(mixed))


def _weights(model, tokens, ids):
    return watch(model, tokens, ids, first=0)[1]


def test_id_heads_look_by_ids_alone_and_begin_with_equal_ones():
    config = TransformerConfig(layers=2, width=64, heads=2, id_heads=1, encoding=RopeConfig(spectrum="random"))
    model = build_model(config, 9, 0).eval()
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randint(1, 9, (1, 12), generator=generator) for _ in range(2))
    ids = torch.tensor([[[3, 9, 40, 7, 700, 3, 8, 40, 9, 12, 3, 700]]])
    with torch.no_grad():
        before, after = _weights(model, first, ids), _weights(model, second, ids)
        shifted = _weights(model, first, ids + 1_000_000)
    assert torch.equal(before[:, 0], after[:, 0])  # whatever the tokens
    assert not torch.equal(before[:, 1], after[:, 1])
    torch.testing.assert_close(shifted, before)
    equal = ids[0, 0][:, None] == ids[0, 0]
    for step in range(12):
        seen = before[0, 0, step, : step + 1]
        assert (seen[equal[step, : step + 1]].min() > seen[~equal[step, : step + 1]]).all()


@pytest.mark.parametrize("encoding", [NoEncodingConfig(), LearnedConfig(max_id=9), SinusoidalConfig()], ids=label)
def test_id_heads_need_ids_in_the_scores(encoding):
    with pytest.raises(BadInput, match="look by IDs alone"):
        build_model(TransformerConfig(width=32, heads=2, id_heads=1, encoding=encoding), 9, 0)


@pytest.mark.parametrize("id_heads", [-1, 3])
def test_more_id_heads_than_heads_are_refused(id_heads):
    with pytest.raises(ValueError, match=r"id_heads must be in 0\.\.2"):
        TransformerConfig(width=32, heads=2, id_heads=id_heads)


@pytest.mark.parametrize(
    ("config", "wrong", "complaint"),
    [
        (EntmaxConfig, {"alpha": 1.0}, r"alpha must be 1\.5 or 2"),
        (TopKConfig, {"keep": 0}, "keep must be at least 1"),
        (SlidingWindowConfig, {"window": 0}, "window must be at least 1"),
        (SlidingWindowConfig, {"sinks": -1}, "sinks not negative"),
    ],
)
def test_settings_without_meaning_are_refused(config, wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        config(**wrong)
