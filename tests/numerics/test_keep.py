"""A mask of keys on top of causality: what is hidden is as good as not there, and nothing else changes."""

import pytest
import torch
from catalogue import ATTENTIONS, ENCODINGS, label
from hypothesis import given
from hypothesis import strategies as st

from longreach.api import (
    RecurrentConfig,
    RopeConfig,
    ScaledSoftmaxConfig,
    SlidingWindowConfig,
    SoftmaxConfig,
    TransformerConfig,
    build_model,
)
from longreach.attention import Attention
from longreach.attention.asentmax import AsEntmax
from longreach.attention.base import ScaledSoftmax
from longreach.engine.plan import choose
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig

VOCAB, SIZE = 9, 12
COUNTED = {SlidingWindowConfig}
"""Attentions that count tokens: one hidden still takes its place in the window."""


def _model(attention=None, encoding=None, **parts):
    parts = {"layers": 2, "width": 32, "heads": 2} | parts
    settings = TransformerConfig(attention=attention or SoftmaxConfig(), encoding=encoding or RopeConfig(), **parts)
    model = build_model(settings, VOCAB, seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # away from the tidy start, where some parts do nothing
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def _text(rows=2):
    tokens = torch.randint(1, VOCAB, (rows, SIZE), generator=torch.Generator().manual_seed(1))
    return tokens, (2 + 3 * torch.arange(SIZE)).expand(rows, 1, SIZE)


def _hiding(hidden, rows=2):
    keep = torch.ones(rows, SIZE, SIZE, dtype=torch.bool)
    keep[:, :, hidden] = False
    return keep


def _still(model):
    """Scores that do not grow: n counts hidden tokens too, and not deleted ones."""
    for module in model.modules():
        if isinstance(module, ScaledSoftmax):
            torch.nn.init.zeros_(module.slope)
        if isinstance(module, AsEntmax):
            torch.nn.init.constant_(module.speed.bias, -1e3)
    return model


@pytest.mark.parametrize("encoding", ENCODINGS, ids=label)
@pytest.mark.parametrize("attention", ATTENTIONS, ids=label)
def test_what_a_hidden_token_is_makes_no_difference(attention, encoding):
    model = _model(attention, encoding)
    tokens, ids = _text()
    changed = tokens.clone()
    changed[:, [0, 4, 5]] = tokens[:, [0, 4, 5]] % (VOCAB - 1) + 1
    others = [place for place in range(SIZE) if place not in (0, 4, 5)]
    keep = _hiding([0, 4, 5])
    with torch.no_grad():
        before, after = (model(some, ids, keep=keep)[:, others] for some in (tokens, changed))
        seen = model(changed, ids)[:, others]
    torch.testing.assert_close(after, before, rtol=0, atol=1e-12)
    assert not torch.allclose(seen, before, atol=1e-6)


@pytest.mark.parametrize(
    ("attention", "encoding"),
    [(SoftmaxConfig(), encoding) for encoding in ENCODINGS]
    + [(attention, RopeConfig()) for attention in ATTENTIONS if type(attention) not in COUNTED],
    ids=label,
)
def test_hidden_from_all_is_deleted_with_the_ids_of_others_kept(attention, encoding):
    model = _still(_model(attention, encoding))
    tokens, ids = _text()
    left = [0, 1, 2, 5, 6, 8, 11]
    hidden = [place for place in range(SIZE) if place not in left]
    with torch.no_grad():
        found = model(tokens, ids, keep=_hiding(hidden))[:, left]
        expected = model(tokens[:, left], ids[:, :, left])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=label)
def test_to_keep_all_is_no_mask(attention):
    model = _model(attention)
    tokens, ids = _text()
    everything = torch.ones(2, SIZE, SIZE, dtype=torch.bool)
    with torch.no_grad():
        plain = model.all_logits(tokens, ids)
        torch.testing.assert_close(model.all_logits(tokens, ids, keep=everything), plain, rtol=1e-7, atol=1e-9)
        later_alone = torch.zeros_like(everything) | everything.tril()  # causality hides the rest anyway
        torch.testing.assert_close(model.all_logits(tokens, ids, keep=later_alone), plain, rtol=1e-7, atol=1e-9)


@given(st.integers(0, 2**32))
def test_any_mask_is_the_formula(seed):
    """Every query of every layer mixes the values it may see, by the softmax of their scores: pair by pair."""
    model = _model(ScaledSoftmaxConfig())
    tokens, ids = _text()
    keep = torch.rand(2, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) < 0.5
    mixed = []
    for module in model.modules():
        if isinstance(module, Attention):
            module.register_forward_hook(lambda _, given, out: mixed.append((given, out)))
    with torch.no_grad():
        model(tokens, ids, keep=keep)
    assert len(mixed) == 2
    for (q, k, v, visible, *_), found in mixed:
        assert visible.tolist() == [list(range(1, SIZE + 1))]  # hidden keys count
        expected = torch.zeros_like(found)
        for row, head, i in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(SIZE)).tolist():
            seen = [j for j in range(i + 1) if j == i or keep[row, i, j]]
            scores = k[row, head, seen] @ q[row, head, i] / q.shape[3] ** 0.5
            expected[row, head, i] = scores.softmax(0) @ v[row, head, seen]
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_each_row_has_its_own_mask_also_at_some_places_and_where_states_are_computed_again():
    tokens, ids = _text()
    keep = torch.rand(2, SIZE, SIZE, generator=torch.Generator().manual_seed(5)) < 0.5
    model = _model(loops=2)
    whole = model(tokens, ids, keep=keep)
    for row in range(2):
        one = slice(row, row + 1)
        torch.testing.assert_close(model(tokens[one], ids[one], keep=keep[one]), whole[one])
    at = torch.tensor([[3, 7], [0, 11]])
    torch.testing.assert_close(model(tokens, ids, at=at, keep=keep), whole[torch.arange(2)[:, None], at])
    recomputing = choose(model, ExecutionConfig(recompute=True), "cpu").training_model(model)
    assert recomputing.recompute
    torch.testing.assert_close(recomputing(tokens, ids, keep=keep), whole)


def test_what_cannot_hide_keys_refuses_to():
    tokens, ids = _text()
    keep = _hiding([3])
    model = _model()
    with pytest.raises(BadInput, match="does not go with a cache"):
        model(tokens, ids, cache=model.new_cache(2, SIZE), keep=keep)
    with pytest.raises(BadInput, match="no keys to hide"):
        build_model(RecurrentConfig(layers=1, width=16), VOCAB, 0)(tokens, ids, keep=keep)
    with pytest.raises(BadInput, match="a copy head would look"):
        _model(copy_head=True).all_logits(tokens, ids, keep=keep)
