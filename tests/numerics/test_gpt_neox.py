"""Equal to Hugging Face's GPT-NeoX with the same weights, with explicit two-dimensional position IDs."""

import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from longreach.api import RopeConfig, ScaledSoftmaxConfig, TransformerConfig, build_model
from longreach.errors import BadInput
from longreach.model import to_gpt_neox

VOCAB = 19
CONFIGS = [
    TransformerConfig(layers=2, width=32, heads=4),
    TransformerConfig(layers=3, width=48, heads=3, parallel_residual=False),
    TransformerConfig(layers=2, width=64, heads=2, encoding=RopeConfig(fraction=0.25)),
    TransformerConfig(layers=1, width=40, heads=5, feed_forward=2, encoding=RopeConfig(base=500.0, fraction=0.5)),
    TransformerConfig(
        layers=2, width=32, heads=4, norm_eps=1e-3, parallel_residual=False, encoding=RopeConfig(base=1e6)
    ),
]


def _hugging_face(config: TransformerConfig, ours) -> GPTNeoXForCausalLM:
    theirs = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=VOCAB,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.feed_forward * config.width,
            hidden_act="gelu",
            max_position_embeddings=4096,
            layer_norm_eps=config.norm_eps,
            use_parallel_residual=config.parallel_residual,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": config.encoding.base,
                "partial_rotary_factor": config.encoding.fraction,
            },
            tie_word_embeddings=False,
        )
    )
    state = to_gpt_neox(ours.state_dict())
    if hasattr(theirs, "lm_head"):  # newer releases rename the head in memory, files keep the old name
        state["lm_head.weight"] = state.pop("embed_out.weight")
    theirs.load_state_dict(state)
    return theirs.eval()


def _ids(kind: str) -> torch.Tensor:
    if kind == "sequential":
        return torch.arange(12).expand(3, 12)
    if kind == "skips":
        return torch.arange(12).expand(3, 12) + torch.tensor([[0], [100], [700]]) * (torch.arange(12) >= 5)
    return torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]).expand(3, 12)  # coupled: repeated, out of order


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("kind", ["sequential", "skips", "coupled"])
def test_logits_are_equal(config, kind):
    ours = build_model(config, VOCAB, seed=3).eval()
    with torch.no_grad():  # away from the tidy start: large weights, biases and norms that matter
        generator = torch.Generator().manual_seed(0)
        for parameter in ours.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    theirs = _hugging_face(config, ours)
    tokens = torch.randint(0, VOCAB, (3, 12), generator=torch.Generator().manual_seed(1))
    ids = _ids(kind)
    with torch.no_grad():
        expected = theirs(
            input_ids=tokens,
            position_ids=ids,
            # without a mask Hugging Face reads any jump in the IDs as the start of another packed sequence
            attention_mask=torch.ones_like(tokens),
            use_cache=False,
        ).logits
        found = ours.all_logits(tokens, ids[:, None])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_gpt_neox_does_not_have_is_refused():
    model = build_model(TransformerConfig(layers=1, width=32, heads=2, attention=ScaledSoftmaxConfig()), VOCAB, 0)
    with pytest.raises(BadInput, match=r"no counterpart of blocks.0.attention.mix.slope"):
        to_gpt_neox(model.state_dict())
