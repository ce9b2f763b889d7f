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
from longreach.engine import by_token
from longreach.engine.by_token import look_up
from longreach.engine.plan import choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.model import Transformer
from longreach.seeding import stream

SMALL = {"layers": 2, "width": 32, "heads": 2}
TASK = Copy()
ENTRIES = len(TASK.vocabulary)


def new(config, models=1, entries=ENTRIES):
    members = [build_model(config, entries, seed) for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():  # no bias and no norm as it begins
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=generator)
    return model.double()


def drawn(rows, length=9):
    numbers = torch.arange(rows)
    sample = TASK.sample(torch.full_like(numbers, length), stream(0, "by token", numbers), length)
    return sample, Sequential().evaluation_ids(TASK, sample)


def plan_for(model, **execution):
    return choose(model, ExecutionConfig(**execution), "cpu")


def twin_of(model):
    plan = plan_for(model)
    assert plan.used[0] == "first_layer_by_token"
    return plan.training_model(model)


def starts_by_token(model, tokens, cache=None):
    """Return whether the first layer normalises the vocabulary instead of every token."""
    seen = []
    ids = torch.arange(tokens.shape[1]).expand(len(tokens), 1, -1)
    with model.blocks[0].norm1.register_forward_hook(lambda module, inputs, out: seen.append(inputs[0].shape)):
        model(tokens, ids, cache)
    table = model.embed.weight.shape
    assert seen[0] in ((1, *table)[-3:], (*tokens.shape, table[-1]))
    return seen[0] == (1, *table)[-3:]


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
def test_states_and_gradients_are_those_of_every_token(config, models):
    model, (sample, ids) = new(config, models), drawn(6 * models)
    found = []
    for one in (twin_of(model), model):
        assert starts_by_token(one, sample.tokens) is (one is not model)
        loss = token_losses(one, sample, ids).sum()
        found.append([one(sample.tokens, ids), loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_growth_that_reads_states_gets_those_of_every_token():
    model, (sample, ids) = new(TransformerConfig(**SMALL, attention=AsEntmaxConfig())), drawn(6)
    twin = twin_of(model)
    assert starts_by_token(twin, sample.tokens)
    torch.testing.assert_close(twin(sample.tokens, ids), model(sample.tokens, ids), rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__.startswith("2.11."), reason="torch 2.11 compiles wrong gradients on CPUs")
def test_compiled_layers_do_it_too():
    errors = run_apart(Path(__file__).with_name("check_compiled_by_token.py"))
    assert len(errors) == 2
    assert max(errors.values()) < 1e-5


def test_in_half_precision_sums_are_exact_too():
    model, (sample, ids) = new(TransformerConfig(**SMALL)).float(), drawn(256)
    found = {}
    for way, one in (("exact", model), ("by token", twin_of(model)), ("every token", model)):
        with torch.autocast("cpu", torch.bfloat16, enabled=way != "exact"):
            assert starts_by_token(one, sample.tokens) is (way == "by token")
            loss = token_losses(one, sample, ids).sum()
        found[way] = torch.autograd.grad(loss, model.blocks[0].attention.qkv.weight)[0]
    errors = {way: float((found[way] - found["exact"]).norm()) for way in ("by token", "every token")}
    assert errors["by token"] < 1.5 * errors["every token"]


def test_it_is_done_where_tokens_are_many_and_alike():
    model, entries = new(TransformerConfig(**SMALL)), ENTRIES
    twin = twin_of(model)
    assert starts_by_token(twin, torch.zeros(2, entries, dtype=torch.long))
    assert not starts_by_token(twin, torch.zeros(1, 2 * entries - 1, dtype=torch.long))
    many = drawn(24)[0].tokens
    assert starts_by_token(twin, many)
    assert not starts_by_token(twin, many, model.new_cache(len(many), 50))
    large = twin_of(new(TransformerConfig(**SMALL | {"layers": 1}), entries=1000).float())
    reads = torch.zeros(20, 100, dtype=torch.long)
    assert starts_by_token(large, reads)
    with torch.autocast("cpu", torch.bfloat16):  # sums would be rounded again and again
        assert not starts_by_token(large, reads)
        with torch.no_grad():
            assert starts_by_token(large, reads)


@pytest.mark.parametrize(
    ("parts", "execution", "reason"),
    [
        ({"encoding": LearnedConfig(max_id=30)}, {}, "the encoding adds position IDs to the embeddings"),
        ({"loops": 2, "inject": True}, {}, "every loop reads the embedded input"),
        ({}, {"recompute": True}, "layers are recomputed"),
    ],
    ids=["learned", "inject", "recompute"],
)
def test_equal_tokens_with_other_states_are_left_to_the_core(parts, execution, reason):
    model, tokens = new(TransformerConfig(**SMALL, **parts)), drawn(24)[0].tokens
    plan = plan_for(model, **execution)
    assert plan.unused["first_layer_by_token"] == reason
    assert not starts_by_token(plan.training_model(model), tokens)


@pytest.mark.parametrize(
    "part", ["embed", "norm1", "feed_forward.up", "attention.qkv", "attention.mix", "block", "attention"]
)
def test_hooks_and_replaced_parts_see_every_token(part, monkeypatch):
    model = new(TransformerConfig(**SMALL))
    block = model.blocks[0]
    watched = {"embed": model.embed, "block": block}.get(part) or block.get_submodule(part)
    with watched.register_forward_hook(lambda *_: None):
        assert "a hook is registered" in plan_for(model).unused["first_layer_by_token"]
    with monkeypatch.context() as replaced:
        replaced.setattr(watched, "forward", lambda *_, **__: None)
        assert "a forward method is replaced" in plan_for(model).unused["first_layer_by_token"]
    assert "first_layer_by_token" in plan_for(model).used
    block.feed_forward.up = nn.Sequential(block.feed_forward.up, nn.Dropout(0.5))  # tells equal tokens apart
    assert plan_for(model).unused["first_layer_by_token"] == "the first layer has a part of another class"


def test_an_embedding_of_another_kind_is_asked_for_every_token():
    model, (sample, ids) = new(TransformerConfig(**SMALL)), drawn(6)
    states = model(sample.tokens, ids)
    model.embed = nn.Sequential(model.embed)
    plan = plan_for(model)
    assert plan.unused["first_layer_by_token"] == "the first layer has a part of another class"
    torch.testing.assert_close(plan.training_model(model)(sample.tokens, ids), states)


def test_layers_of_a_subclass_are_used():
    class Silent(Transformer):
        def run_layers(self, x, inputs, at):
            return torch.zeros_like(x)

    model, (sample, ids) = new(TransformerConfig(**SMALL)), drawn(6)
    model.__class__ = Silent
    plan = plan_for(model)
    assert plan.unused["first_layer_by_token"] == "Silent computes its states in a way of its own"
    states = plan.training_model(model)(sample.tokens, ids)
    torch.testing.assert_close(states, model.norm.bias.expand_as(states))


def test_small_tables_get_their_gradient_from_a_product(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    for shape in ((7, 5), (3, 7, 5)):
        table = torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        index = torch.randint(7, (6, 4), generator=generator)
        if len(shape) == 3:  # each model has two of the rows and its part of the table
            index = index + 7 * torch.arange(3).repeat_interleave(2)[:, None]
        towards = torch.randn(6, 4, 5, generator=generator, dtype=torch.float64)
        found = look_up(index, table, by_product=True)
        assert found.grad_fn.name().startswith("_LookUp")
        plain = torch.nn.functional.embedding(index, table.flatten(0, -2))
        torch.testing.assert_close(found, plain)
        wanted = torch.autograd.grad(plain, table, towards)
        torch.testing.assert_close(torch.autograd.grad(found, table, towards), wanted)
    assert "Embedding" in look_up(index, table).grad_fn.name()
    large = torch.zeros(1000, 5, requires_grad=True)
    assert "Embedding" in look_up(index, large, by_product=True).grad_fn.name()
    monkeypatch.setattr(by_token, "MOST_NUMBERS", 7 * index.numel() - 1)
    assert "Embedding" in look_up(index, table, by_product=True).grad_fn.name()


@pytest.mark.parametrize("models", [1, 2])
def test_embeddings_get_their_gradient_from_a_product(models):
    model, (sample, ids) = new(TransformerConfig(**SMALL, encoding=LearnedConfig(max_id=30)), models), drawn(2 * models)
    plan = choose(model, ExecutionConfig(without=["large_chunks"]), "cuda", "fp32")
    assert plan.used[0] == "embedding_gradient"
    twin = plan.training_model(model)
    assert twin.embed(sample.tokens).grad_fn.name().startswith("_LookUp")
    found = []
    for one in (twin, model):
        loss = token_losses(one, sample, ids).sum()
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
