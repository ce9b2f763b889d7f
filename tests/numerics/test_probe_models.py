"""The adapters: what a mask hides is gone, on every architecture and attention; masked equals left out."""

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from longreach.api import RecurrentConfig, ScaledSoftmaxConfig, TransformerConfig, build_model
from longreach.errors import BadInput
from longreach.probe import HuggingFace, OwnModel, Passage, ProbeConfig, predicting, probe
from longreach.probe.masks import masked_log_probabilities, seen_by
from longreach.probe.progress import silent
from longreach.probe.retention import retained_log_probabilities

VOCAB, SIZE = 31, 20


def _hugging_face(kind, attention="sdpa"):
    torch.manual_seed(0)
    shared = {"vocab_size": VOCAB, "attn_implementation": attention}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    model = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shared, **sizes, num_key_value_heads=2, initializer_range=0.3)),
        "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**shared, **sizes, initializer_range=0.3)),
        "granite": lambda: GraniteForCausalLM(
            GraniteConfig(**shared, **sizes, initializer_range=0.3, logits_scaling=3)
        ),
        "mistral": lambda: MistralForCausalLM(
            MistralConfig(**shared, **sizes, num_key_value_heads=2, sliding_window=32, initializer_range=0.3)
        ),
        "gpt2": lambda: GPT2LMHeadModel(
            GPT2Config(**shared, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3)
        ),
    }[kind]()
    return HuggingFace(model, kind)


def _own(**parts):
    model = build_model(TransformerConfig(layers=2, width=32, heads=2, **parts), VOCAB, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return OwnModel(model, "ours")


MODELS = {
    **{f"{kind}-{attention}": (_hugging_face, kind, attention) for kind in ("llama", "gpt_neox", "gpt2")
       for attention in ("sdpa", "eager")},
    "ours": (_own,),
}  # fmt: skip


@pytest.fixture(params=MODELS, ids=str)
def model(request):
    make, *arguments = MODELS[request.param]
    return make(*arguments)


def _text():
    return torch.randint(0, VOCAB, (SIZE,), generator=torch.Generator().manual_seed(1))


def test_full_context_is_what_the_model_says(model):
    tokens, targets = _text(), torch.tensor([1, 7, SIZE - 1])
    found, entropy = model.full_context(tokens, targets)
    if isinstance(model, HuggingFace):
        logits = model.model(tokens[None], attention_mask=torch.ones(1, SIZE)).logits[0]
    else:
        logits = model.model.all_logits(tokens[None], torch.arange(SIZE)[None, None])[0]
    law = torch.distributions.Categorical(logits=logits[targets - 1])
    torch.testing.assert_close(found, law.log_prob(tokens[targets]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, law.entropy(), rtol=1e-4, atol=1e-5)


def test_a_prediction_depends_on_what_is_kept_and_on_nothing_else(model):
    """Causal reachability, token by token: a change is noticed if and only if the token is seen."""
    tokens, targets = _text(), torch.arange(1, SIZE)
    kept = torch.rand(1, SIZE, generator=torch.Generator().manual_seed(2)) < 0.5
    before = masked_log_probabilities(model, tokens, targets, kept, 1, silent)[0]
    for place in range(SIZE - 1):
        changed = tokens.clone()
        changed[place] = (tokens[place] + 1) % VOCAB
        after = masked_log_probabilities(model, changed, targets, kept, 1, silent)[0]
        differs = (after - before).abs() > 1e-6
        later = targets > place + 1
        assert not differs[targets < place].any()
        if kept[0, place] or place == 0:
            assert differs[later].all(), place
        else:
            assert not differs[later].any(), place
        assert differs[targets == place + 1].all()  # the one read last is always seen


def test_hidden_tokens_may_be_left_out_of_the_sequence(model):
    tokens, targets = _text(), torch.arange(1, SIZE)
    kept = torch.rand(1, SIZE, generator=torch.Generator().manual_seed(3)) < 0.5
    masked = masked_log_probabilities(model, tokens, targets, kept, 1, silent)[0]
    assert model.exact_when_left_out
    short = retained_log_probabilities(model, tokens, targets, kept.expand(len(targets), -1), 1, silent)
    torch.testing.assert_close(short, masked, rtol=1e-4, atol=1e-4)
    model.exact_when_left_out = False
    long = retained_log_probabilities(model, tokens, targets, kept.expand(len(targets), -1), 1, silent)
    torch.testing.assert_close(long, masked, rtol=1e-4, atol=1e-4)


def test_a_window_means_the_same_for_masks_and_for_retention():
    model, tokens, targets = _hugging_face("llama"), _text(), torch.arange(1, SIZE)
    kept = torch.rand(1, SIZE, generator=torch.Generator().manual_seed(4)) < 0.3
    masked = masked_log_probabilities(model, tokens, targets, kept, 4, silent)[0]
    same = retained_log_probabilities(model, tokens, targets, kept.expand(len(targets), -1), 4, silent)
    torch.testing.assert_close(same, masked, rtol=1e-4, atol=1e-4)
    seen = seen_by(kept, torch.arange(SIZE)[None], 4)[0]
    for i in range(SIZE):
        for j in range(i + 1):
            assert bool(seen[i, j]) == (j == 0 or i - j < 4 or bool(kept[0, j]))


def test_attention_that_counts_tokens_keeps_them_in_the_sequence():
    model = _own(attention=ScaledSoftmaxConfig())
    assert not model.exact_when_left_out


def test_results_do_not_depend_on_the_memory_at_hand():
    tokens, targets = _text(), torch.tensor([9, 12, 19])
    small, large = _hugging_face("llama"), _hugging_face("llama")
    small.memory = 1
    config = ProbeConfig(masks=24, held_out=8, largest_k=4)
    one, other = (probe(some, Passage("", tokens, ("",) * SIZE), targets, config) for some in (small, large))
    torch.testing.assert_close(one.weights, other.weights, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(one.loss_at, other.loss_at, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "passes"),
    [
        (lambda: _hugging_face("llama"), 1),
        (lambda: _hugging_face("gpt_neox"), 1),
        (lambda: _hugging_face("gpt2"), 1),
        (lambda: _hugging_face("granite"), 5),  # its head does more than multiply: each part takes a pass
        (_own, 1),
    ],
    ids=["llama", "gpt_neox", "gpt2", "granite", "ours"],
)
def test_no_more_logits_are_held_than_allowed(make, passes, monkeypatch):
    model, most = make(), 4 * VOCAB
    rows = torch.stack([_text(), _text().flip(0)])
    whole = -model.log_probabilities(rows, torch.arange(1, SIZE))
    monkeypatch.setattr("longreach.probe.next_tokens._LOGITS", most)
    held, embedded = [], []
    model.embedding.register_forward_hook(lambda *_: embedded.append(1))
    for module in model.model.modules():
        module.register_forward_hook(
            lambda module, _, out: held.append(out.numel()) if getattr(out, "shape", (0,))[-1] == VOCAB else None
        )
    nats, right = predicting(model)(rows, SIZE - 1)
    torch.testing.assert_close(nats, whole, rtol=1e-5, atol=1e-5)
    assert right.shape == whole.shape
    assert held
    assert max(held) <= most
    assert len(embedded) == 2 * passes


class Leaking(HuggingFace):
    def scores(self, tokens, positions, keep, at):
        return super().scores(tokens, positions, None, at)


def test_models_that_cannot_hide_tokens_are_refused():
    config = MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, state_size=4)
    with pytest.raises(BadInput, match="takes no mask or no positions"):
        HuggingFace(MambaForCausalLM(config), "mamba")
    with pytest.raises(BadInput, match="tokens that a mask hides still change"):
        Leaking(_hugging_face("llama").model, "leaking")
    with pytest.raises(BadInput, match="no keys to hide"):
        OwnModel(build_model(RecurrentConfig(layers=1, width=16), VOCAB, 0), "recurrent")
    with pytest.raises(BadInput, match="copy head"):
        OwnModel(build_model(TransformerConfig(layers=1, width=16, heads=2, copy_head=True), VOCAB, 0), "copier")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "gpt_neox", "gpt2", "granite", "mistral"])
def test_positions_that_do_not_count_leave_attention_whole(kind, attention):
    """Hugging Face cuts attention at such positions where it gets no mask."""
    model = _hugging_face(kind, attention)
    tokens, at = _text()[None], torch.arange(SIZE)
    other = tokens.clone()
    other[0, 0] = (tokens[0, 0] + 1) % VOCAB
    whole = torch.ones(1, SIZE, SIZE, dtype=torch.bool)
    kinds = {
        "skip": torch.cat([torch.arange(10), torch.arange(25, 35)]),
        "repeat": torch.arange(SIZE) // 2,
        "fall": torch.cat([torch.arange(10), torch.arange(10)]),
    }
    for name, positions in kinds.items():
        with torch.no_grad():
            expected = model.scores(tokens, positions[None], whole, at)
            for found in (
                model.scores(tokens, positions[None], None, at),
                torch.cat(list(model.scores_in_parts(tokens, positions[None], at, 7)), dim=1),
            ):
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=name)
            changed = torch.cat(list(model.scores_in_parts(other, positions[None], at, 7)), dim=1)
        assert (changed[0, -1] - expected[0, -1]).abs().max() > 1e-3, name


def test_half_precision_is_stated():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, **sizes, initializer_range=0.3))
    assert HuggingFace(llama.bfloat16(), "llama").name == "llama (bf16)"
