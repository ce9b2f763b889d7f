"""Attention of Hugging Face's models is whole under position IDs that skip, repeat, fall or stay the same."""

import copy
import inspect
from itertools import pairwise

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, default_data_collator
from transformers import modeling_flash_attention_utils as flash
from transformers.data import DataCollatorWithFlattening
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask
from transformers.modeling_utils import AttentionInterface

from longreach.api import LlamaConfig, UncutCollator, build_model, check_attention_uncut, keep_attention_uncut
from longreach.errors import BadInput
from longreach.hf.uncut import boundaries_of

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
SIZES |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "n_positions": 256}
PLAIN = ("llama", "gpt_neox", "qwen2", "qwen3", "phi", "starcoder2", "stablelm", "olmo2", "glm4", "cohere", "gemma")
PLAIN += ("smollm3", "granite", "nemotron")
ARCHITECTURES = {
    **{name: {} for name in PLAIN},
    **{name: {"sliding_window": 16} for name in ("mistral", "gemma2", "gemma3_text", "olmo3")},
    "phi3": {"original_max_position_embeddings": 256},
    "mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "qwen3_moe": {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
    "gptj": OLD,
}
COUNT = torch.arange(8)
IDS = {"skip": COUNT + 9 * (COUNT > 3), "repeat": COUNT // 2, "fall": COUNT.flip(0), "stay": COUNT * 0}


def tiny(name: str, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = CONFIG_MAPPING[name](**{**SIZES, **ARCHITECTURES.get(name, {}), **changes})
        return AutoModelForCausalLM.from_config(config).eval()


def reads_the_first(model, ids, rows, **options) -> bool:
    """Whether the last logits of all rows depend on the first token."""
    tokens = (10 + COUNT).repeat(rows, 1)
    changed = tokens.clone()
    changed[:, 0] = 40
    options = {"use_cache": False} | options
    with torch.no_grad():
        one, other = (
            model(input_ids=row, position_ids=ids.repeat(rows, 1), **options).logits for row in (tokens, changed)
        )
    return bool(((one - other)[:, -1].abs().amax(1) > 1e-5).all())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_check_fails_where_attention_is_cut_and_passes_where_it_is_whole(name):
    model = tiny(name)
    assert not any(reads_the_first(model, ids, rows) for ids in IDS.values() for rows in (1, 2))
    with pytest.raises(BadInput, match=r"of this \w+ model is cut where position IDs skip \(1 row\): train with"):
        check_attention_uncut(model)
    check_attention_uncut(model, UncutCollator())
    handle = keep_attention_uncut(model)
    check_attention_uncut(model)
    assert all(reads_the_first(model, ids, rows) for ids in IDS.values() for rows in (1, 2))
    handle.remove()
    with pytest.raises(BadInput, match="is cut"):
        check_attention_uncut(model)


@pytest.mark.parametrize("word", IDS)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_all_logits_are_those_of_a_causal_mask_of_four_dimensions(word, implementation):
    model, ids = tiny("llama"), IDS[word].repeat(2, 1)
    model.set_attn_implementation(implementation)
    tokens = torch.randint(3, 64, (2, 8), generator=torch.Generator().manual_seed(1))
    mask = torch.full((8, 8), torch.finfo(torch.float32).min).triu(1).expand(2, 1, 8, 8)
    rows = [{"input_ids": row, "position_ids": at} for row, at in zip(tokens, ids, strict=True)]
    with torch.no_grad():
        expected = model(input_ids=tokens, position_ids=ids, attention_mask=mask, use_cache=False).logits
        batch = UncutCollator()(rows)
        torch.testing.assert_close(model(**batch, use_cache=False).logits, expected)
        keep_attention_uncut(model)
        found = model(input_ids=tokens, position_ids=ids, use_cache=False).logits
    torch.testing.assert_close(found, expected)


def test_sliding_windows_stay_as_they_are():
    model, ids = tiny("mistral", sliding_window=4), torch.arange(40)[None] * 2
    tokens = torch.randint(3, 60, (1, 40), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 0] = 60
    batches = [UncutCollator()([{"input_ids": row[0], "position_ids": ids[0]}]) for row in (tokens, changed)]
    with torch.no_grad():
        one, other = (model(**batch, use_cache=False).logits for batch in batches)
    # two layers with windows of 4 read 6 tokens back
    assert not torch.equal(one[0, 6], other[0, 6])
    assert torch.equal(one[0, 7:], other[0, 7:])
    check_attention_uncut(model, UncutCollator())


def test_rows_are_padded_with_masks_labels_and_boundaries():
    rows = [
        {"input_ids": [5, 6, 7], "position_ids": [0, 9, 10]},
        {"input_ids": [8, 9], "labels": [-100, 9], "attention_mask": [1, 1]},
        {"input_ids": [4, 0, 0], "attention_mask": [1, 0, 0]},
    ]
    batch = UncutCollator(pad_token=3)(rows)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 9, 3], [4, 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 9, 10], [0, 1, 0], [0, 1, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0]]
    assert batch["labels"].tolist() == [[5, 6, 7], [-100, 9, -100], [4, -100, -100]]
    assert batch["cu_seq_lens_q"].tolist() == batch["cu_seq_lens_k"].tolist() == [0, 3, 6, 9]
    assert batch["max_length_q"] == batch["max_length_k"] == 3
    assert "cu_seq_lens_q" not in UncutCollator(boundaries=False)(rows)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"input_ids": [1], "text": "a"}, "no use for the column text"),
        ({"labels": [1]}, "a row has no input_ids: it has labels"),
        ({"input_ids": [1, 2], "position_ids": [1]}, r"2 tokens, and its position_ids have the shape \(1,\)"),
    ],
)
def test_rows_that_cannot_be_batched_are_refused(row, complaint):
    with pytest.raises(BadInput, match=complaint):
        UncutCollator()([row])


def test_the_check_names_models_and_collators_that_cannot_serve():
    model = tiny("llama")
    for collator in (
        DataCollatorWithFlattening(return_position_ids=True),
        lambda rows: {"input_ids": torch.tensor([row["input_ids"] for row in rows])},
    ):
        with pytest.raises(BadInput, match="drops, packs or changes position_ids: use UncutCollator"):
            check_attention_uncut(model, collator)
    with pytest.raises(BadInput, match="is cut where position IDs skip"):
        check_attention_uncut(model, default_data_collator)  # gives no mask
    ours = build_model(LlamaConfig(layers=1, width=16, heads=2), 9, 0)
    for use in (check_attention_uncut, keep_attention_uncut):
        with pytest.raises(BadInput, match="expected a causal language model of Hugging Face, got Transformer"):
            use(ours)
    with pytest.raises(BadInput, match="bloom models take no position IDs"):
        check_attention_uncut(tiny("bloom", n_layer=1, n_head=4))
    with pytest.raises(BadInput, match="have linear_attention layers, which hide a cut"):
        check_attention_uncut(tiny("qwen3_next", layer_types=["linear_attention", "full_attention"]))


def test_a_check_computes_in_fp32_and_leaves_the_model_as_it_was():
    model = tiny("llama").to(torch.bfloat16).train()
    model.lm_head.eval()
    seen = []
    model.model.layers[0].register_forward_pre_hook(lambda module, args: seen.append((args[0].dtype, module.training)))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    check_attention_uncut(model, UncutCollator())
    assert set(seen) == {(torch.float32, False)}
    assert [parameter.data_ptr() for parameter in model.parameters()] == pointers
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert model.training
    assert not model.lm_head.training


@pytest.mark.parametrize("reentrant", [False, True])
def test_training_with_gradient_checkpointing_reads_the_first_token(reentrant):
    model = tiny("llama").train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})

    def gradient_of_the_first(**options):
        embedded = model.get_input_embeddings()((10 + COUNT)[None]).detach().requires_grad_()
        model(inputs_embeds=embedded, position_ids=IDS["skip"][None], **options).logits[0, -1].sum().backward()
        return float(embedded.grad[0, 0].abs().max())

    assert gradient_of_the_first() == 0  # cut: checkpointing switches the cache off
    assert gradient_of_the_first(attention_mask=torch.ones(1, 8, dtype=torch.long), **boundaries_of(1, 8)) > 0
    keep_attention_uncut(model)
    assert gradient_of_the_first() > 0


@pytest.mark.parametrize("use_cache", [False, True])
def test_generation_reads_the_first_token(use_cache):
    model, tokens = tiny("llama"), (10 + COUNT)[None]
    changed = tokens.clone()
    changed[0, 0] = 40

    def differs(ids):
        scores = [
            model.generate(
                row,
                attention_mask=torch.ones_like(row),
                position_ids=ids[None],
                max_new_tokens=3,
                min_new_tokens=3,
                do_sample=False,
                use_cache=use_cache,
                output_logits=True,
                return_dict_in_generate=True,
            ).logits
            for row in (tokens, changed)
        ]
        return bool((scores[0][0] - scores[1][0]).abs().max() > 1e-5)

    if tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 22):  # generate drops the mask of ones
        assert [differs(ids) for ids in IDS.values()] == [use_cache] * 4
    keep_attention_uncut(model)
    assert all(differs(ids) for ids in IDS.values())


def test_adapters_around_the_model_keep_it_uncut():
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(tiny("llama"), settings).eval()
    with pytest.raises(BadInput, match="is cut"):
        check_attention_uncut(adapted)
    check_attention_uncut(adapted, UncutCollator())
    for model in (copy.deepcopy(adapted), peft.get_peft_model(tiny("llama"), settings).eval()):
        keep_attention_uncut(model)
        check_attention_uncut(model)
    inside = tiny("llama")
    keep_attention_uncut(inside)
    check_attention_uncut(peft.get_peft_model(inside, settings).eval())


def causal(q, k, v, **_):
    """Flash attention's layout: [rows, tokens, heads, numbers]."""
    k, v = (part.repeat_interleave(q.shape[2] // part.shape[2], 2) for part in (k, v))
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def causal_in_pieces(q, k, v, cu_seqlens_q, cu_seqlens_k, **_):
    """Tokens before the first edge are left out, as real kernels do."""
    assert torch.equal(cu_seqlens_q, cu_seqlens_k)
    mixed = torch.zeros_like(q)
    for start, stop in pairwise(cu_seqlens_q.tolist()):
        mixed[start:stop] = causal(*(part[None, start:stop] for part in (q, k, v)))[0]
    return mixed


@pytest.fixture
def flash_model(monkeypatch):
    """A Llama that goes through transformers' code for flash kernels, with kernels for a CPU."""
    functions = (causal, causal_in_pieces, None, flash._pad_input, flash._unpad_input)
    has_pages = "process_paged_kwargs_fn" in inspect.getsource(flash._flash_attention_forward)  # newer releases

    def kernels(*_, **__):
        return functions, (dict, dict) if has_pages else dict

    monkeypatch.setattr(flash, "lazy_import_flash_attention", kernels)
    AttentionInterface.register("flash_on_cpu", flash_attention_forward)
    AttentionMaskInterface.register("flash_on_cpu", flash_attention_mask)
    model = tiny("llama")
    model.config._attn_implementation = "flash_on_cpu"
    return model


def test_flash_kernels_get_the_boundaries_of_rows(flash_model):
    for options in ({"attention_mask": torch.ones(1, 8, dtype=torch.long)}, {"use_cache": True}):
        found = {word: reads_the_first(flash_model, IDS[word], 1, **options) for word in ("skip", "repeat", "stay")}
        assert found == {"skip": True, "repeat": False, "stay": False}  # cut at every minimal ID
    with pytest.raises(BadInput, match="is cut"):
        check_attention_uncut(flash_model)
    with pytest.raises(BadInput, match=r"is cut where position IDs stay the same \(1 row\)"):
        check_attention_uncut(flash_model, UncutCollator(boundaries=False))
    check_attention_uncut(flash_model, UncutCollator())
    keep_attention_uncut(flash_model)
    check_attention_uncut(flash_model)
    assert all(reads_the_first(flash_model, ids, 1, use_cache=True) for ids in IDS.values())
    rows = [{"input_ids": COUNT + 5, "position_ids": IDS["fall"]}, {"input_ids": [7, 8, 9], "position_ids": [4, 4, 2]}]
    batch = UncutCollator()(rows)
    with torch.no_grad():
        found, expected = (model(**batch, use_cache=False).logits for model in (flash_model, tiny("llama")))
    torch.testing.assert_close(found[batch["attention_mask"] == 1], expected[batch["attention_mask"] == 1])
