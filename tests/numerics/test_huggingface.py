"""Equal to Hugging Face's GPT-NeoX and Llama with the same weights, both ways, with explicit position IDs."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)
from transformers import LlamaConfig as TheirLlamaConfig

from longreach.api import (
    AlibiConfig,
    LlamaConfig,
    PointerConfig,
    RecurrentConfig,
    ReRopeConfig,
    RopeConfig,
    ScaledRopeConfig,
    ScaledSoftmaxConfig,
    SelfExtendConfig,
    TransformerConfig,
    build_model,
)
from longreach.errors import BadInput
from longreach.hf import from_huggingface, to_huggingface
from longreach.hf.rope import encoding_for
from longreach.hf.settings import names_in

VOCAB = 19
TOKENS = torch.randint(0, VOCAB, (3, 12), generator=torch.Generator().manual_seed(1))
CONFIGS = [
    TransformerConfig(layers=2, width=32, heads=4),
    TransformerConfig(layers=3, width=48, heads=3, parallel_residual=False),
    TransformerConfig(layers=2, width=64, heads=2, encoding=RopeConfig(fraction=0.25), tie_embeddings=True),
    TransformerConfig(layers=1, width=40, heads=5, feed_forward=2, encoding=RopeConfig(base=500.0, fraction=0.5)),
    TransformerConfig(
        layers=2, width=32, heads=4, norm_eps=1e-3, parallel_residual=False, encoding=RopeConfig(base=1e6)
    ),
    LlamaConfig(layers=2, width=32, heads=4),
    LlamaConfig(layers=3, width=48, heads=6, kv_heads=2, tie_embeddings=True, norm_eps=1e-3),
    LlamaConfig(layers=2, width=64, heads=4, kv_heads=1, biases=True, encoding=RopeConfig(base=1e5)),
    LlamaConfig(layers=1, width=32, heads=2, encoding=ScaledRopeConfig(method="linear", factor=4.0, trained_to=512)),
    LlamaConfig(layers=1, width=64, heads=2, encoding=ScaledRopeConfig(method="llama3", factor=8.0, trained_to=512)),
    LlamaConfig(layers=1, width=64, heads=2, encoding=ScaledRopeConfig(method="yarn", factor=16.0, trained_to=32)),
    TransformerConfig(layers=1, width=64, heads=2, encoding=ScaledRopeConfig(trained_to=32, fraction=0.5)),
]
COUPLED = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def _ids(kind):
    if kind == "sequential":
        return torch.arange(12).expand(3, 12)
    if kind == "skips":
        return torch.arange(12).expand(3, 12) + torch.tensor([[0], [100], [700]]) * (torch.arange(12) >= 5)
    return torch.tensor(COUPLED).expand(3, 12)  # repeated, out of order


def _disturbed(model):
    """Away from the tidy start: large weights, biases and norms that matter."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def _theirs(theirs, ids, **options):
    # without a mask Hugging Face reads any jump in the IDs as the start of another packed sequence
    options = {"attention_mask": torch.ones_like(TOKENS)} | options
    return theirs(input_ids=TOKENS, position_ids=ids, use_cache=False, **options).logits


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("kind", ["sequential", "skips", "coupled"])
def test_logits_and_gradients_are_equal(config, kind):
    ours = _disturbed(build_model(config, VOCAB, seed=3))
    theirs, ids = to_huggingface(ours), _ids(kind)
    found, expected = ours.all_logits(TOKENS, ids[:, None]), _theirs(theirs, ids)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.square().mean().backward()
    expected.square().mean().backward()
    renamed = names_in(theirs).to_theirs({name: p.grad for name, p in ours.named_parameters()}, config)
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert renamed.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(renamed[name], gradient, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_there_and_back_is_the_same_model(config):
    ours = _disturbed(build_model(config, VOCAB, seed=3))
    back = from_huggingface(to_huggingface(ours))
    assert back.config == config
    assert not back.training
    state = back.state_dict()
    assert state.keys() == ours.state_dict().keys()
    assert all(torch.equal(state[name], weight) for name, weight in ours.state_dict().items())


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(layers=1, width=64, heads=2, encoding=ScaledRopeConfig(method="ntk", factor=4.0)),
        TransformerConfig(layers=1, width=64, heads=2, encoding=ScaledRopeConfig(method="ntk", fraction=0.5)),
    ],
    ids=str,
)
def test_static_ntk_is_rope_with_a_larger_theta(config):
    ours, ids = _disturbed(build_model(config, VOCAB, seed=3)), _ids("skips")
    theirs = to_huggingface(ours)
    assert theirs.config.rope_parameters["rope_type"] == "default"
    torch.testing.assert_close(_theirs(theirs, ids), ours.all_logits(TOKENS, ids[:, None]), rtol=1e-4, atol=1e-5)
    back = from_huggingface(theirs).config.encoding
    assert type(back) is RopeConfig
    assert back.base > config.encoding.base * config.encoding.factor


def test_a_copy_shares_no_weight():
    theirs = to_huggingface(build_model(CONFIGS[5], VOCAB, seed=0))
    ours = from_huggingface(theirs)
    before = {name: weight.clone() for name, weight in theirs.state_dict().items()}
    _disturbed(ours)
    assert all(torch.equal(before[name], weight) for name, weight in theirs.state_dict().items())


@pytest.mark.parametrize(
    ("theirs", "settings"),
    [
        (
            LlamaForCausalLM,
            TheirLlamaConfig(
                vocab_size=VOCAB,
                hidden_size=48,
                intermediate_size=100,
                num_hidden_layers=2,
                num_attention_heads=6,
                num_key_value_heads=3,
                rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
            ),
        ),
        (
            GPTNeoXForCausalLM,
            GPTNeoXConfig(
                vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4
            ),
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_model_of_theirs_is_read(theirs, settings, dtype):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = _disturbed(theirs(settings)).to(dtype)
    ours, ids = from_huggingface(model), _ids("skips")
    assert ours.embed.weight.dtype == dtype
    with torch.no_grad():
        found, expected = ours.all_logits(TOKENS, ids[:, None]).float(), _theirs(model, ids).float()
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-4
    assert float((found - expected).abs().max()) < tolerance * float(expected.abs().max())


def test_a_mask_of_keys_is_theirs_of_four_dimensions():
    ours = _disturbed(build_model(CONFIGS[6], VOCAB, seed=3))
    keep = torch.rand(3, 12, 12, generator=torch.Generator().manual_seed(0)) < 0.6
    mask = (keep | torch.eye(12, dtype=torch.bool)).tril()[:, None]
    ids = _ids("sequential")
    with torch.no_grad():
        expected = _theirs(to_huggingface(ours), ids, attention_mask=mask)
        found = ours.all_logits(TOKENS, ids[:, None], keep=keep)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[6], CONFIGS[9]], ids=str)
def test_what_is_written_is_read_by_name_and_generates(config, tmp_path):
    ours = _disturbed(build_model(config, VOCAB, seed=3))
    to_huggingface(ours, longest=777, stop_token=4).save_pretrained(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert (theirs.config.max_position_embeddings, theirs.config.eos_token_id) == (777, 4)
    with torch.no_grad():
        torch.testing.assert_close(
            _theirs(theirs, _ids("skips")), ours.all_logits(TOKENS, _ids("skips")[:, None]), rtol=1e-4, atol=1e-5
        )
        mask = torch.ones_like(TOKENS[:1])  # without it, tokens equal to the padding would be hidden
        written = theirs.generate(TOKENS[:1], attention_mask=mask, max_new_tokens=3, do_sample=False, pad_token_id=0)
        tokens = TOKENS[:1]
        for expected in written[0, 12:].tolist():
            best = ours.all_logits(tokens, torch.arange(tokens.shape[1])[None, None])[0, -1].argmax()
            assert int(best) == expected
            tokens = torch.cat([tokens, best.view(1, 1)], dim=1)


def test_to_write_a_model_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    to_huggingface(build_model(CONFIGS[0], VOCAB, 0))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"attention": ScaledSoftmaxConfig()}, "attention scaled_softmax"),
        ({"encoding": AlibiConfig()}, "encoding alibi"),
        ({"encoding": RopeConfig(spectrum="random")}, "random spectrum"),
        ({"encoding": ScaledRopeConfig(method="dynamic")}, "changes? in doublings"),
        ({"loops": 2}, "loops=2"),
        ({"id_heads": 1}, "id_heads"),
        ({"position_head": PointerConfig()}, "position_head"),
        ({"copy_head": True}, "copy_head"),
        ({"norm_queries_and_keys": True}, "norm_queries_and_keys"),
        ({"norm": "rms"}, "these are neither"),
        ({"kv_heads": 1}, "these are neither"),
    ],
)
def test_what_hugging_face_does_not_have_is_refused(parts, complaint):
    model = build_model(TransformerConfig(layers=1, width=32, heads=2, **parts), VOCAB, 0)
    with pytest.raises(BadInput, match=complaint):
        to_huggingface(model)


def test_other_models_and_ids_of_several_levels_are_refused():
    with pytest.raises(BadInput, match="no recurrent model"):
        to_huggingface(build_model(RecurrentConfig(layers=1, width=16), VOCAB, 0))
    with pytest.raises(BadInput, match="longest=512 must be above"):
        to_huggingface(build_model(CONFIGS[9], VOCAB, 0), longest=512)
    with pytest.raises(BadInput, match="this model reads 2"):
        to_huggingface(build_model(TransformerConfig(layers=1, width=32, heads=2), VOCAB, 0, level_sizes=(0, 0)))


def _llama(**changes):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(TheirLlamaConfig(vocab_size=VOCAB, **(sizes | changes)))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_act": "relu"}, "hidden_act=relu cannot be read: only silu"),
        ({"head_dim": 32}, "head_dim=32"),
        ({"attention_bias": True}, "mlp_bias=False cannot be read: only True"),
        ({"attention_dropout": 0.1}, "attention_dropout=0.1"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "type dynamic"),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 1e4,
                    "factor": 2.0,
                    "original_max_position_embeddings": 64,
                    "low_freq_factor": 2.0,
                    "high_freq_factor": 4.0,
                }
            },
            "low_freq_factor=2.0",
        ),
    ],
)
def test_what_we_do_not_have_is_refused(changes, complaint):
    with pytest.raises(BadInput, match=complaint):
        from_huggingface(_llama(**changes))


def test_models_of_other_types_are_refused_by_name():
    settings = MistralConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
    )
    with pytest.raises(BadInput, match="type mistral cannot be read: gpt_neox and llama can"):
        from_huggingface(MistralForCausalLM(settings))


SCALED = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 512}
SCALED |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("yarn", ScaledRopeConfig(method="yarn", base=5e5, trained_to=512)),
        ({"name": "ntk", "factor": 2}, ScaledRopeConfig(method="ntk", factor=2.0, base=5e5, trained_to=512)),
        ({"name": "linear", "trained_to": 64}, ScaledRopeConfig(method="linear", base=5e5, trained_to=64)),
        ("self_extend", SelfExtendConfig(base=5e5, window=256)),
        ({"name": "rerope", "base": 1e4, "window": 9}, ReRopeConfig(window=9)),
        ("alibi", AlibiConfig()),
    ],
)
def test_an_encoding_takes_what_it_lacks_from_the_configuration(values, expected):
    scaled = TheirLlamaConfig(max_position_embeddings=4096, rope_parameters=SCALED)
    assert encoding_for(scaled, values, "--encoding") == expected
    linear = {"rope_type": "linear", "rope_theta": 5e5, "factor": 8.0}
    assert encoding_for(TheirLlamaConfig(max_position_embeddings=4096, rope_parameters=linear), values, "") == expected
    plain = TheirLlamaConfig(max_position_embeddings=512, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert encoding_for(plain, values, "--encoding") == expected


def test_a_short_name_with_another_method_is_refused():
    with pytest.raises(BadInput, match="'yarn' has method=yarn, and method=ntk was given"):
        encoding_for(TheirLlamaConfig(), {"name": "yarn", "method": "ntk"}, "--encoding")
