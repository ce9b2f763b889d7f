"""Layers as Llama has them: shared keys and values, gates, RMS norms, no biases."""

from dataclasses import replace

import pytest
import torch
from catalogue import ATTENTIONS, ENCODINGS, LAYERS, label
from torch.nn.functional import rms_norm, silu

from longreach.api import LlamaConfig, ScaledSoftmaxConfig, TransformerConfig, build_model
from longreach.config import build_part, to_plain
from longreach.errors import BadInput
from longreach.model import ModelConfig

VOCAB, SIZE = 9, 12
TOKENS = torch.randint(0, VOCAB, (2, SIZE), generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([5, 3, 3, 9, 1, 2, 80, 81, 4, 4, 7, 6]).expand(2, 1, SIZE)


def _model(config):
    """Away from the tidy start: norms and biases that matter."""
    model = build_model(config, VOCAB, seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


SHARED = LlamaConfig(layers=2, width=32, heads=4, kv_heads=2)
PARTS = [replace(SHARED, encoding=encoding, attention=ScaledSoftmaxConfig()) for encoding in ENCODINGS]
PARTS += [replace(SHARED, attention=attention) for attention in ATTENTIONS]


def _spread(name, weight, config):
    """What a model without sharing has where one with sharing has `weight`."""
    if "attention.qkv" not in name:
        return weight
    shared, size = config.heads // config.groups, config.head_dim
    grouped = weight.view(config.groups, shared + 2, size, -1)
    queries, keys_and_values = grouped[:, :shared], grouped[:, None, shared:].expand(-1, shared, -1, -1, -1)
    each = torch.cat([queries[:, :, None], keys_and_values], dim=2)  # [group, head, q k v, size, width]
    return each.reshape(3 * config.width, *weight.shape[1:])


@pytest.mark.parametrize("config", PARTS, ids=lambda config: label((config.encoding, config.attention)))
def test_shared_keys_and_values_are_copies(config):
    ours, plain = _model(config), _model(replace(config, kv_heads=0))
    plain.load_state_dict({name: _spread(name, weight, config) for name, weight in ours.state_dict().items()})
    torch.testing.assert_close(ours(TOKENS, IDS), plain(TOKENS, IDS), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("config", [*PARTS, *LAYERS], ids=lambda config: label((config.encoding, config.attention)))
def test_the_cache_holds_the_same_states(config):
    model = _model(config)
    with torch.no_grad():
        whole, cache, parts = model(TOKENS, IDS), model.new_cache(2, SIZE), []
        assert cache.keys.shape[2] == config.groups
        for start, stop in ((0, 5), (5, 6), (6, 12)):
            parts.append(model(TOKENS[:, start:stop], IDS[:, :, start:stop], cache))
            cache.advance(torch.tensor([stop - start] * 2))
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-6)


def test_the_feed_forward_net_and_the_norms_are_the_formulas():
    model = _model(LlamaConfig(layers=1, width=32, heads=2, feed_forward=1.3))
    net, x = model.blocks[0].feed_forward, torch.randn(2, 3, 32, dtype=torch.float64)
    assert net.up.weight.shape == (42, 32)  # 41.6, rounded
    expected = (silu(x @ net.gate.weight.T) * (x @ net.up.weight.T)) @ net.out.weight.T
    torch.testing.assert_close(net(x), expected)
    for norm in (model.norm, model.blocks[0].norm1, model.blocks[0].norm2):
        torch.testing.assert_close(norm(x), rms_norm(x, (32,), norm.weight, 1e-5))


@pytest.mark.parametrize("config", LAYERS, ids=str)
def test_what_is_there_and_how_it_begins(config):
    model = build_model(config, VOCAB, seed=0)
    parameters = dict(model.named_parameters())
    assert any(name.endswith("bias") for name in parameters) == config.biases
    assert any("gate" in name for name in parameters) == config.gated
    assert model.blocks[0].attention.qkv.weight.shape == ((4 + 2 * config.groups) * 8, 32)
    spread = {name: parameter.detach().std() for name, parameter in parameters.items() if parameter.dim() == 2}
    for name, std in spread.items():
        assert float(std) == pytest.approx(0.01 if ".out." in name else 0.02, rel=0.2), name
    assert model(TOKENS[:0], IDS[:0]).shape == (0, SIZE, 32)
    model.all_logits(TOKENS, IDS).square().sum().backward()
    assert all(parameter.grad is not None for parameter in parameters.values())


def test_a_llama_is_named_and_written_as_one():
    config = build_part(ModelConfig, {"name": "llama", "layers": 1, "width": 64, "kv_heads": 2}, "model")
    assert config == LlamaConfig(layers=1, width=64, kv_heads=2)
    assert (config.norm, config.gated, config.biases, config.parallel_residual) == ("rms", True, False, False)
    assert build_part(ModelConfig, to_plain(config), "model") == config


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"kv_heads": 3}, "kv_heads=3 cannot be shared evenly by 4 heads"),
        ({"kv_heads": -1}, "kv_heads=-1 cannot"),
        ({"kv_heads": 8}, "kv_heads=8 cannot"),
        ({"kv_heads": 2, "id_heads": 1}, "keys of their own"),
        ({"feed_forward": 0.001}, "feed_forward=0.001 leaves no hidden unit"),
        ({"norm": "batch"}, "unknown value 'batch'"),
    ],
)
def test_settings_without_meaning_are_refused(parts, complaint):
    with pytest.raises(BadInput, match=complaint):
        build_part(ModelConfig, {"name": "transformer", "width": 32, "heads": 4, **parts}, "model")


def test_old_recipes_count_widths_in_whole_numbers():
    config = build_part(ModelConfig, {"name": "transformer", "width": 32, "heads": 4, "feed_forward": 2}, "model")
    assert config == TransformerConfig(width=32, heads=4, feed_forward=2)
    assert config.hidden == 64
