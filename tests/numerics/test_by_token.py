"""The first layer of the vocabulary against that of every token."""

from pathlib import Path

import pytest
import torch
from losses import token_losses
from on_gpu import run_apart
from torch import nn

from longreach.api import (
    AlibiConfig,
    AsEntmaxConfig,
    Copy,
    LearnedConfig,
    LlamaConfig,
    ScaledSoftmaxConfig,
    Sequential,
    TransformerConfig,
    build_model,
)
from longreach.engine.by_token import pays, suits
from longreach.engine.stacking import stack_models
from longreach.model import transformer
from longreach.seeding import stream

SMALL = {"layers": 2, "width": 32, "heads": 2}
TASK = Copy()


def new(config, models=1):
    members = [build_model(config, len(TASK.vocabulary), seed) for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():  # no bias and no norm as it begins
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=generator)
    return model.double()


def drawn(rows, length=9):
    numbers = torch.arange(rows)
    sample = TASK.sample(torch.full_like(numbers, length), stream(0, "by token", numbers), length)
    return sample, Sequential().evaluation_ids(TASK, sample)


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(**SMALL),
        TransformerConfig(**SMALL | {"layers": 1}),
        TransformerConfig(**SMALL, loops=2),
        TransformerConfig(**SMALL, tie_embeddings=True, encoding=AlibiConfig()),
        TransformerConfig(**SMALL, id_heads=1, attention=ScaledSoftmaxConfig(), norm_queries_and_keys=True),
        TransformerConfig(**SMALL, parallel_residual=False),
        LlamaConfig(**SMALL, kv_heads=1),
    ],
    ids=["plain", "one layer", "loops", "tied", "scaled", "in turn", "llama"],
)
def test_states_and_gradients_are_those_of_every_token(config, models, monkeypatch):
    model, (sample, ids) = new(config, models), drawn(6 * models)
    found = []
    for by_token in (True, False):
        monkeypatch.setattr(transformer, "pays", lambda *_, by_token=by_token: by_token)
        assert model._starts_by_token(sample.tokens, None) is by_token
        loss = token_losses(model, sample, ids).sum()
        found.append([model(sample.tokens, ids), loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)  # the loss itself is in fp32


def test_growth_that_reads_states_gets_those_of_every_token(monkeypatch):
    model, (sample, ids) = new(TransformerConfig(**SMALL, attention=AsEntmaxConfig())), drawn(6)
    states = []
    for by_token in (True, False):
        monkeypatch.setattr(transformer, "pays", lambda *_, by_token=by_token: by_token)
        states.append(model(sample.tokens, ids))
    torch.testing.assert_close(*states)


@pytest.mark.skipif(torch.__version__.startswith("2.11."), reason="torch 2.11 compiles wrong gradients on CPUs")
def test_compiled_layers_do_it_too():
    errors = run_apart(Path(__file__).with_name("check_compiled_by_token.py"))
    assert len(errors) == 2
    assert max(errors.values()) < 1e-5


def test_in_half_precision_sums_are_exact_too(monkeypatch):
    model, (sample, ids) = new(TransformerConfig(**SMALL)).float(), drawn(256)
    found = {}
    for way, by_token in (("exact", False), ("by token", True), ("every token", False)):
        monkeypatch.setattr(transformer, "pays", lambda *_, by_token=by_token: by_token)
        with torch.autocast("cpu", torch.bfloat16, enabled=way != "exact"):
            loss = token_losses(model, sample, ids).sum()
        found[way] = torch.autograd.grad(loss, model.blocks[0].attention.qkv.weight)[0]
    errors = {way: float((found[way] - found["exact"]).norm()) for way in ("by token", "every token")}
    assert errors["by token"] < 1.5 * errors["every token"]


def test_it_is_done_where_tokens_are_many_and_alike():
    model, (sample, _) = new(TransformerConfig(**SMALL)), drawn(6)
    entries = len(TASK.vocabulary)
    assert pays(torch.zeros(2, entries, dtype=torch.long), model.embed)
    assert not pays(torch.zeros(1, 2 * entries - 1, dtype=torch.long), model.embed)
    large, reads = nn.Embedding(1000, 4), torch.zeros(2, 1000, dtype=torch.long)
    assert pays(reads, large)
    with torch.autocast("cpu", torch.bfloat16):  # sums would be rounded again and again
        assert not pays(reads, large)
        with torch.no_grad():
            assert pays(reads, large)
    many = sample.tokens.repeat(4, 1)
    assert model._starts_by_token(many, None)
    assert not model._starts_by_token(many, model.new_cache(len(many), 50))
    assert not new(TransformerConfig(**SMALL, encoding=LearnedConfig(max_id=30)))._starts_by_token(many, None)
    assert not new(TransformerConfig(**SMALL, loops=2, inject=True))._starts_by_token(many, None)
    model.recompute = True
    assert not model._starts_by_token(many, None)


@pytest.mark.parametrize("part", ["embed", "norm1", "feed_forward.up", "attention.qkv", "block", "attention"])
def test_whoever_watches_or_replaces_a_part_sees_every_token(part, monkeypatch):
    model = new(TransformerConfig(**SMALL))
    block = model.blocks[0]
    watched = {"embed": model.embed, "block": block}.get(part) or block.get_submodule(part)
    assert suits(model.embed, block)
    with watched.register_forward_hook(lambda *_: None):
        assert not suits(model.embed, block)
    assert suits(model.embed, block)
    with block.attention.mix.register_forward_hook(lambda *_: None):  # is asked as ever
        assert suits(model.embed, block)
    with monkeypatch.context() as replaced:
        replaced.setattr(watched, "forward", lambda *_, **__: None)
        assert not suits(model.embed, block)
    assert suits(model.embed, block)
    block.feed_forward.up = nn.Sequential(block.feed_forward.up, nn.Dropout(0.5))  # tells equal tokens apart
    assert not suits(model.embed, block)


def test_an_embedding_of_another_kind_is_asked_for_every_token():
    model, (sample, ids) = new(TransformerConfig(**SMALL)), drawn(6)
    states = model(sample.tokens, ids)
    model.embed = nn.Sequential(model.embed)
    torch.testing.assert_close(model(sample.tokens, ids), states)


def test_a_mix_of_a_subclass_is_used():
    class Silent(transformer.Transformer):
        def mix(self, embedded, *others):
            return torch.zeros_like(embedded)

    model, (sample, ids) = new(TransformerConfig(**SMALL)), drawn(6)
    model.__class__ = Silent
    states = model(sample.tokens, ids)
    torch.testing.assert_close(states, model.norm.bias.expand_as(states))
