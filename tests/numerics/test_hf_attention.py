"""Attentions of longreach in models of Hugging Face: equal to eager where they must be, and never without a mask."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from test_uncut import tiny
from transformers import AutoConfig

import longreach.api as lr
from longreach.errors import BadInput
from longreach.hf.attention import NAMES, attend

TOKENS = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(0))
ALL = {"trained_length": 12, "keep": 12}
"""Settings with which scores do not grow and no key is left out."""


def logits(model, tokens=TOKENS, **options):
    with torch.no_grad():
        return model(input_ids=tokens, **options).logits


@pytest.mark.parametrize("name", ["scaled_softmax", "top_k"])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("gpt_neox", {}),
        ("granite", {"attention_multiplier": 0.3}),
        ("mistral", {"sliding_window": 4}),
        ("gemma2", {"sliding_window": 4, "attn_logit_softcapping": 0.05}),
        ("qwen3_moe", {}),
    ],
)
def test_where_scores_do_not_grow_attention_is_that_of_eager(kind, changes, name):
    model = tiny(kind, **changes)
    model.set_attn_implementation("eager")
    masks = [torch.ones_like(TOKENS), torch.ones_like(TOKENS)]
    masks[0][1, :5] = masks[1][1, 7:] = 0
    expected = [logits(model, attention_mask=mask) for mask in masks]
    lr.set_attention(model, name, **ALL)
    for mask, wanted in zip(masks, expected, strict=True):
        torch.testing.assert_close(logits(model, attention_mask=mask)[mask == 1], wanted[mask == 1])


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_what_comes_later_have_no_effect_and_a_cache_changes_nothing(name):
    model = tiny("mistral", sliding_window=6)
    lr.set_attention(model, name, trained_length=3, keep=2)
    whole = logits(model)
    changed = TOKENS.clone()
    changed[:, 8:] = 5
    assert torch.equal(logits(model, changed)[:, :8], whole[:, :8])
    assert not torch.equal(logits(model, changed)[:, 8:], whole[:, 8:])
    padded = torch.nn.functional.pad(TOKENS, (4, 0), value=9)
    mask = torch.nn.functional.pad(torch.ones_like(TOKENS), (4, 0))
    ids = (mask.cumsum(1) - 1).clamp(min=0)
    found = logits(model, padded, attention_mask=mask, position_ids=ids)[:, 4:]
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        first = model(input_ids=TOKENS[:, :7], use_cache=True)
        steps = [first.logits]
        for place in range(7, 12):
            step = model(input_ids=TOKENS[:, place : place + 1], past_key_values=first.past_key_values)
            steps.append(step.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-4, atol=1e-5)
    caches = ({}, {"use_cache": False}, {"cache_implementation": "static", "disable_compile": True})
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    answers = [model.generate(TOKENS, **options, **cache) for cache in caches]
    assert answers[0].shape == (2, 17)
    assert all(torch.equal(answer, answers[0]) for answer in answers)


def call(name, q, k, v, mask=None, causal=True, settings=None, **options):
    config = SimpleNamespace(max_position_embeddings=4, longreach_attention=settings)
    module = SimpleNamespace(config=config, is_causal=causal, training=False)
    return attend(name, module, q, k, v, mask, **options)


def drawn(queries=9, keys=9, heads=4, groups=2):
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    return draw(2, heads, queries, 8), draw(2, groups, keys, 8), draw(2, groups, keys, 8)


@pytest.mark.parametrize("window", [None, 6])
def test_scores_grow_with_the_logarithm_of_the_keys_beyond_the_trained_length(window):
    q, k, v = drawn()
    mixed, weights = call("scaled_softmax", q, k, v, sliding_window=window, scaling=0.7)
    scores = 0.7 * q @ k.repeat_interleave(2, dim=1).transpose(2, 3)
    for query in range(9):
        first = 0 if window is None else max(0, query + 1 - window)
        seen = query + 1 - first
        growth = max(1, math.log(seen) / math.log(4))
        expected = (growth * scores[:, :, query, first : query + 1]).softmax(-1)
        torch.testing.assert_close(weights[:, :, query, first : query + 1], expected)
        assert not weights[:, :, query, :first].any()
        assert not weights[:, :, query, query + 1 :].any()
    torch.testing.assert_close(mixed, (weights @ v.repeat_interleave(2, dim=1)).transpose(1, 2))


def test_entmax_and_top_k_have_exact_zeros():
    q, k, v = drawn(queries=3, keys=40)
    for name, most in (("entmax", 39), ("top_k", 5)):
        _, weights = call(name, 3 * q, k, v, settings={"keep": 5})
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        seen = torch.arange(40) < torch.arange(38, 41)[:, None]
        assert not weights[~seen.expand_as(weights)].any()
        assert ((weights > 0).sum(-1) <= most).all()
        assert (weights == 0)[..., :38].any(-1).all()
    _, sparser = call("entmax", 3 * q, k, v, settings={"alpha": 2})
    assert (sparser > 0).sum() < (call("entmax", 3 * q, k, v)[1] > 0).sum()


@pytest.mark.parametrize("name", NAMES)
def test_a_call_without_a_mask_is_causal_or_refused(name):
    q, k, v = drawn(queries=3)
    _, weights = call(name, q, k, v)
    later = torch.arange(9) > torch.arange(6, 9)[:, None]
    assert not weights[later.expand_as(weights)].any()
    with pytest.raises(BadInput, match="got no mask from SimpleNamespace, which is not causal"):
        call(name, q, k, v, causal=False)
    with pytest.raises(BadInput, match="cannot honour s_aux, which SimpleNamespace passes"):
        call(name, q, k, v, s_aux=torch.zeros(4))


def test_masks_of_numbers_and_of_booleans_mean_the_same_and_scalings_of_heads_are_kept():
    q, k, v = drawn()
    seen = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(2)) > 0.4
    seen[1, :, 3] = False  # a query of padding
    lowest = torch.zeros(2, 1, 9, 9, dtype=q.dtype).masked_fill(~seen, torch.finfo(q.dtype).min)
    infinite = lowest.masked_fill(~seen, -torch.inf)
    found = [call("scaled_softmax", q, k, v, mask)[0] for mask in (seen, lowest, infinite)]
    assert all(torch.equal(one, found[0]) for one in found)
    assert found[0].isfinite().all()
    scaling = torch.tensor([0.1, 0.2, 0.3, 0.4]).view(1, 4, 1, 1)
    _, all_heads = call("scaled_softmax", q, k, v, scaling=scaling)
    for head in range(4):
        _, one = call("scaled_softmax", q, k, v, scaling=float(scaling[0, head]))
        torch.testing.assert_close(all_heads[:, head], one[:, head])


def test_settings_are_saved_with_the_config_and_mistakes_are_one_line(tmp_path):
    model = tiny("llama")
    model.set_attn_implementation("longreach_scaled_softmax")  # without settings: max_position_embeddings
    plain = tiny("llama")
    torch.testing.assert_close(logits(model), logits(plain))
    lr.set_attention(model, "top_k", keep=3, trained_length=8)
    model.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).longreach_attention == {"trained_length": 8, "keep": 3, "alpha": 1.5}
    again = type(model).from_pretrained(tmp_path, attn_implementation="longreach_top_k")
    assert torch.equal(logits(again), logits(model))
    headed = lr.with_position_head(model)
    assert torch.equal(headed(input_ids=TOKENS).logits, logits(again))
    lr.set_attention(headed, "entmax", trained_length=3)
    assert model.config._attn_implementation == "longreach_entmax"
    assert not torch.equal(headed(input_ids=TOKENS).logits, logits(again))
    for use, complaint in (
        (lambda: lr.set_attention(plain, "softmax"), "attention must be one of scaled_softmax, entmax, top_k"),
        (lambda: lr.set_attention(plain, "top_k", keep=0), "keep must be at least 1, got 0"),
        (lambda: lr.set_attention(plain, "entmax", alpha=3), "alpha must be 1.5 or 2, got 3"),
        (lambda: lr.set_attention(plain, "top_k", kept=2), "kept"),
        (lambda: lr.set_attention(tiny("gptj"), "top_k"), "gptj models have a fixed attention"),
        (lambda: call("top_k", *drawn(), settings={"kept": 2}), "config.longreach_attention.*kept"),
    ):
        with pytest.raises(ValueError, match=complaint) as refused:
            use()
        assert "\n" not in str(refused.value)
    assert not hasattr(tiny("llama").config, "longreach_attention")


@pytest.mark.parametrize("name", NAMES)
def test_training_has_finite_gradients_also_in_bf16(name):
    model = tiny("llama").to(torch.bfloat16).train()
    lr.set_attention(model, name, trained_length=4, keep=3)
    mask = torch.ones_like(TOKENS)
    mask[0, :3] = 0
    model(input_ids=TOKENS, attention_mask=mask, labels=TOKENS.masked_fill(mask == 0, -100)).loss.backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    assert model.model.layers[0].self_attn.q_proj.weight.grad.abs().max() > 0
