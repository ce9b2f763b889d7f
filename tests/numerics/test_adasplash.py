"""Long sequences on a GPU go through the package adasplash, whose kernels run nowhere else: here, what it is handed."""

import importlib.util
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from entmax import entmax15

from longreach.api import AlibiConfig, AsEntmaxConfig, EntmaxConfig, SoftmaxConfig, TransformerConfig, build_model
from longreach.engine import adasplash
from longreach.engine.plan import Plan, choose
from longreach.execution import ExecutionConfig

PLAN = Plan(device="cpu", precision="fp32", engine="auto", used=("adasplash",), unused={})


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
    monkeypatch.setattr(adasplash, "FROM", 1)
    monkeypatch.setitem(sys.modules, "adasplash", _as_the_package(calls))
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, attention=attention), 7, 0).double()
    read, ids = torch.arange(tokens)[None] % 7, torch.arange(tokens)[None, None]
    results = []
    for one in (model, PLAN.training_model(model)):
        states = one(read, ids)
        gradients = torch.autograd.grad(states.sin().sum(), list(model.parameters()), allow_unused=True)
        results.append([states, *(g for g in gradients if g is not None)])
    assert len(calls) == 2
    for found, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


def test_with_a_bias_or_a_cache_the_formula_stays(monkeypatch):
    monkeypatch.setattr(adasplash, "FROM", 1)
    served = []
    monkeypatch.setattr(adasplash, "attend", lambda q, k, v: served.append(q.shape) or q)
    biased = TransformerConfig(layers=1, width=32, heads=2, attention=EntmaxConfig(), encoding=AlibiConfig())
    twin = PLAN.test_model(build_model(biased, 7, 0))
    twin(torch.zeros(1, 5, dtype=torch.long), torch.arange(5)[None, None])
    model = PLAN.test_model(build_model(_CONFIG, 7, 0))
    cache = model.new_cache(1, slots=5)
    cache.fix()
    model(torch.zeros(1, 2, dtype=torch.long), torch.arange(2)[None, None], cache)
    assert served == []
    model(torch.zeros(1, 2, dtype=torch.long), torch.arange(2)[None, None])
    assert served == [(1, 2, 2, 16)]  # without either it is asked


_CONFIG = TransformerConfig(layers=1, width=32, heads=2, attention=EntmaxConfig())


def test_short_sequences_keep_the_formula(monkeypatch):
    served = []
    monkeypatch.setattr(adasplash, "attend", lambda q, k, v: served.append(q.shape[2]) or q)
    twin = PLAN.test_model(build_model(_CONFIG, 7, 0))
    for tokens in (1023, 1024):
        twin(torch.zeros(1, tokens, dtype=torch.long), torch.arange(tokens)[None, None])
    assert served == [1024]


@pytest.mark.parametrize(
    ("parts", "dtype", "reason"),
    [
        ({}, torch.float32, ""),
        ({}, torch.bfloat16, ""),
        ({}, torch.float64, "thresholds are searched in fp32"),
        ({"width": 48}, torch.float32, "heads have 24 dimensions"),
        ({"attention": EntmaxConfig(alpha=2.0)}, torch.float32, "alpha is not 1.5"),
        ({"attention": AsEntmaxConfig()}, torch.float32, ""),
        ({"attention": SoftmaxConfig()}, torch.float32, "attention is not entmax"),
    ],
)
def test_where_it_is_planned(monkeypatch, parts, dtype, reason):
    found = importlib.util.find_spec
    here = {"adasplash": object()}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *args: here.get(name) or found(name, *args))
    model = build_model(replace(_CONFIG, **parts), 7, 0).to(dtype)
    assert choose(model, ExecutionConfig(), "cuda").unused.get("adasplash", "") == reason
    if reason != "attention is not entmax":
        assert choose(model, ExecutionConfig(), "cpu").unused["adasplash"] == "needs a GPU"
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *args: found(name, *args) and None)
        without = choose(model, ExecutionConfig(), "cuda").unused["adasplash"]
        assert without == "the package adasplash is not installed"
