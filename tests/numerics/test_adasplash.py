"""Long sequences on a GPU go through the package adasplash, whose kernels run nowhere else: here, what it is handed."""

import sys
from types import SimpleNamespace

import pytest
import torch
from entmax import entmax15
from on_gpu import OnGpu

from longreach.api import AlibiConfig, AsEntmaxConfig, EntmaxConfig, TransformerConfig, build_model
from longreach.engine import adasplash


def _as_the_package(calls):
    """What adasplash promises to compute, by exact entmax, for inputs that it takes."""

    def attend(q, k, v, alpha, is_causal):
        calls.append(q.shape)
        tokens, size = q.shape[2:]
        assert (alpha, is_causal) == (1.5, True)
        assert tokens.bit_count() == 1
        assert all(x.is_contiguous() for x in (q, k, v))
        hidden = ~torch.ones(tokens, tokens, dtype=torch.bool).tril()
        return entmax15((q @ k.transpose(2, 3) * size**-0.5).masked_fill(hidden, -1e4), dim=-1) @ v

    return SimpleNamespace(adasplash=attend)


@pytest.mark.parametrize("tokens", [1, 8, 13])
@pytest.mark.parametrize("attention", [EntmaxConfig(), AsEntmaxConfig()], ids=["entmax", "asentmax"])
def test_padding_behind_changes_nothing(monkeypatch, attention, tokens):
    calls = []
    monkeypatch.setitem(sys.modules, "adasplash", _as_the_package(calls))
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, attention=attention), 7, 0).double()
    read, ids = torch.arange(tokens)[None] % 7, torch.arange(tokens)[None, None]
    results = []
    for served in (False, True):
        monkeypatch.setattr(adasplash, "serves", lambda q, alpha, served=served: served)
        states = model(read, ids)
        gradients = torch.autograd.grad(states.sin().sum(), list(model.parameters()), allow_unused=True)
        results.append([states, *(g for g in gradients if g is not None)])
    assert len(calls) == 2
    for found, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


def test_with_a_bias_or_a_cache_the_formula_stays(monkeypatch):
    monkeypatch.setattr(adasplash, "serves", lambda q, alpha: True)
    served = []
    monkeypatch.setattr(adasplash, "attend", lambda q, k, v: served.append(q.shape) or q)
    biased = TransformerConfig(layers=1, width=32, heads=2, attention=EntmaxConfig(), encoding=AlibiConfig())
    build_model(biased, 7, 0)(torch.zeros(1, 5, dtype=torch.long), torch.arange(5)[None, None])
    model = build_model(TransformerConfig(layers=1, width=32, heads=2, attention=EntmaxConfig()), 7, 0)
    cache = model.new_cache(1, slots=5)
    cache.fix()
    model(torch.zeros(1, 2, dtype=torch.long), torch.arange(2)[None, None], cache)
    assert served == []
    model(torch.zeros(1, 2, dtype=torch.long), torch.arange(2)[None, None])
    assert served == [(1, 2, 2, 16)]  # without either it is asked


def test_where_it_serves(monkeypatch):
    here = {"there": True}
    monkeypatch.setattr(adasplash.importlib.util, "find_spec", lambda name: object() if here["there"] else None)
    queries = lambda tokens, size: torch.empty(1, 1, tokens, size).as_subclass(OnGpu)  # noqa: E731
    assert adasplash.serves(queries(1024, 32), 1.5)
    assert not adasplash.serves(queries(1023, 32), 1.5)
    assert not adasplash.serves(queries(1024, 24), 1.5)
    assert not adasplash.serves(queries(1024, 32), 2.0)
    assert adasplash.serves(queries(1024, 32).bfloat16(), 1.5)
    assert not adasplash.serves(queries(1024, 32).double(), 1.5)
    assert not adasplash.serves(torch.empty(1, 1, 1024, 32), 1.5)
    here["there"] = False
    assert not adasplash.serves(queries(1024, 32), 1.5)
