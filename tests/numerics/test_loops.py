"""Layers gone through several times, and encodings exchanged after training."""

from dataclasses import replace

import pytest
import torch
from helpers import TINY, draw

from longreach.api import (
    Coupled,
    EvalConfig,
    LearnedConfig,
    Lengths,
    ParityScratchpad,
    RecurrentConfig,
    ReRopeConfig,
    RopeConfig,
    ScaledRopeConfig,
    SelfExtendConfig,
    TransformerConfig,
    build_model,
    generate,
)
from longreach.errors import BadInput
from longreach.evaluation import evaluate

TOKENS = torch.randint(1, 9, (2, 10), generator=torch.Generator().manual_seed(0))
IDS = torch.arange(10).expand(2, 1, 10)


def test_loops_are_layers_with_the_same_weights():
    looped = build_model(TransformerConfig(layers=2, width=32, heads=2, loops=3), 9, 0).eval()
    deep = build_model(TransformerConfig(layers=6, width=32, heads=2), 9, 0).eval()
    deep.load_state_dict(
        {
            **looped.state_dict(),
            **{
                name.replace(f"blocks.{layer}.", f"blocks.{layer + 2 * number}.", 1): tensor
                for name, tensor in looped.state_dict().items()
                for layer in range(2)
                for number in range(3)
                if name.startswith(f"blocks.{layer}.")
            },
        }
    )
    torch.testing.assert_close(looped(TOKENS, IDS), deep(TOKENS, IDS))


def test_injection_adds_the_embedded_input_before_every_round_but_the_first():
    model = build_model(TransformerConfig(layers=1, width=32, heads=2, loops=2, inject=True), 9, 0).eval()
    once = build_model(TransformerConfig(layers=1, width=32, heads=2), 9, 0).eval()
    once.load_state_dict(model.state_dict())
    embedded = model.embed(TOKENS)
    inputs = once.layer_inputs(IDS, None, None, None)
    first = once.run_layers(embedded, inputs, None)
    expected = model.norm(once.run_layers(first + embedded, inputs, None))
    torch.testing.assert_close(model(TOKENS, IDS), expected)
    with pytest.raises(ValueError, match="inject needs loops"):
        TransformerConfig(inject=True)
    with pytest.raises(ValueError, match="loops must be at least 1, got 0"):
        TransformerConfig(loops=0)


def test_looped_generation_with_a_cache_equals_reading_all_again():
    task, policy = ParityScratchpad(), Coupled(max_id=90)
    model = build_model(replace(TINY, loops=3, inject=True), len(task.vocabulary), 5, max_id=90).eval()
    with torch.no_grad():
        model.head.weight.mul_(40)
    sample = draw(task, [6, 10, 8, 14])
    cached = generate(model, task, policy, sample)
    assert torch.equal(cached.tokens, generate(model, task, policy, sample, use_cache=False).tokens)


def test_another_encoding_serves_trained_weights_for_a_while():
    rope = build_model(TransformerConfig(layers=2, width=32, heads=2), 9, 0).eval()
    far = build_model(TransformerConfig(layers=2, width=32, heads=2, encoding=ReRopeConfig(window=3)), 9, 0).eval()
    before, expected = rope(TOKENS, IDS), far(TOKENS, IDS)
    assert not torch.equal(before, expected)
    with rope.exchange_encoding(ReRopeConfig(window=3)):
        assert torch.equal(rope(TOKENS, IDS), expected)
    assert torch.equal(rope(TOKENS, IDS), before)
    with (
        pytest.raises(BadInput, match="learned has other weights than rope"),
        rope.exchange_encoding(LearnedConfig(max_id=9)),
    ):
        pass
    recurrent = build_model(RecurrentConfig(layers=1, width=16), 9, 0)
    with pytest.raises(BadInput, match="no encoding to exchange"):
        recurrent.exchange_encoding(RopeConfig())


def test_a_test_says_with_what_encoding_it_was_made():
    task, policy = ParityScratchpad(), Coupled(max_id=90)
    model = build_model(TINY, len(task.vocabulary), 5, max_id=90)
    with torch.no_grad():  # away from the tidy start, so that IDs matter
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    plain = EvalConfig(lengths=Lengths((6, 30)), samples=64, free_samples=4)
    other = replace(plain, encoding=ScaledRopeConfig(method="ntk", factor=100.0, trained_to=4))
    assert other.test_ids() == "encoded by scaled_rope method ntk factor 100.0 trained_to 4"
    trained = model.encoding
    scores = [evaluate(model, task, policy, config, 0, "cpu") for config in (plain, other)]
    assert model.encoding is trained
    assert [score.hits for score in scores[0]] != [score.hits for score in scores[1]]
    assert replace(plain, encoding=SelfExtendConfig()).test_ids() == "encoded by self_extend"
