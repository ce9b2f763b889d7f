"""Position heads around models of Hugging Face: the wrapped model's logits, our own loss and our own generation."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_uncut import ARCHITECTURES, tiny
from transformers import AutoModelForCausalLM, DynamicCache

import longreach.api as lr
from longreach.config import build_part
from longreach.decoding import generate
from longreach.errors import BadInput
from longreach.objectives import Batch, IdLoss, run_forward
from longreach.seeding import stream
from longreach.tasks import Task

TOKENS = torch.randint(3, 64, (2, 10), generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([[1, 2, 3, 4, 5, 1, 2, 3, 4, 5], [3, 9, 11, 20, 21, 3, 9, 11, 20, 21]])
LABELS = TOKENS.masked_fill(torch.arange(10) < 5, -100)
LEVELS = torch.stack([IDS, IDS.flip(1), IDS % 3], dim=1)
KINDS = [
    (IDS, {"kind": "pointer"}),
    (IDS, {"kind": "table", "max_id": 30}),
    (LEVELS, {"kind": "pointer", "level_sizes": (0, 0, 3)}),
]


def write(model, tokens, ids, **options):
    """Return four new tokens with all IDs."""
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0} | options
    found = model.generate(tokens, position_ids=ids, return_dict_in_generate=True, **options)
    return found.sequences, found.position_ids


@pytest.mark.parametrize(("name", "case"), [(name, number % 3) for number, name in enumerate(ARCHITECTURES)])
def test_logits_are_those_of_the_wrapped_model_training_works_and_saving_keeps_all(name, case, tmp_path):
    (ids, options), model = KINDS[case], tiny(name)
    weights = {key: weight.clone() for key, weight in model.state_dict().items()}
    handle = lr.keep_attention_uncut(model)
    plain = model(input_ids=TOKENS, position_ids=IDS, labels=LABELS, use_cache=False)
    handle.remove()
    wrapped = lr.with_position_head(model, **options)
    assert all(torch.equal(weight, weights[key]) for key, weight in model.state_dict().items())
    given = {"input_ids": TOKENS, "position_ids": ids, "labels": LABELS, "use_cache": False}
    found = wrapped(**given)
    torch.testing.assert_close(found.logits, plain.logits)
    torch.testing.assert_close(found.token_loss, plain.loss.detach())
    torch.testing.assert_close(found.loss.detach(), found.token_loss + found.id_loss)
    optimizer = torch.optim.Adam(wrapped.parameters(), 3e-3)
    for _ in range(2):
        found.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        before, found = found, wrapped(**given)
        assert found.loss < before.loss
        assert found.id_loss < before.id_loss
    wrapped.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(again) is type(wrapped)
    loaded = again(**given)
    assert torch.equal(loaded.logits, found.logits)
    assert torch.equal(loaded.id_loss, found.id_loss)
    cached = write(again, TOKENS[:, :5], ids[..., :5])
    uncached = write(wrapped.eval(), TOKENS[:, :5], ids[..., :5], use_cache=False)
    assert all(map(torch.equal, cached, uncached))


@pytest.fixture(scope="module")
def both():
    """A task, a model of ours with a pointer, and the same model of Hugging Face's with the same head."""
    task = build_part(Task, "copy", "task")
    settings = {"layers": 2, "width": 32, "heads": 4, "attention": lr.SoftmaxConfig()}
    headed = lr.LlamaConfig(**settings, position_head=lr.PointerConfig())
    ours = lr.build_model(headed, len(task.vocabulary), 3, max_id=64).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    bare = lr.build_model(lr.LlamaConfig(**settings), len(task.vocabulary), 0)
    bare.load_state_dict({k: v for k, v in ours.state_dict().items() if not k.startswith("position_head")})
    theirs = lr.with_position_head(lr.to_huggingface(bare, stop_token=task.stop_token)).eval()
    theirs.position_head.load_state_dict(ours.position_head.state_dict())
    sample = task.sample(torch.tensor([3, 6, 9, 5]), stream(0, "ppc", torch.arange(4)), 9)
    return task, ours, theirs, sample


def padded(sample, ids, side):
    """Return tokens, IDs and masks of whole rows."""
    columns = sample.tokens.shape[1]
    tokens, places, mask = (torch.zeros(len(ids), columns, dtype=torch.long) for _ in range(3))
    for row, count in enumerate(sample.num_tokens.tolist()):
        here = slice(columns - count, columns) if side == "left" else slice(0, count)
        tokens[row, here], places[row, here], mask[row, here] = sample.tokens[row, :count], ids[row, 0, :count], 1
    return tokens, places, mask


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("on", ["answer", "all"])
def test_the_loss_is_that_of_our_own_models(both, on, side):
    task, ours, theirs, sample = both
    ids = lr.Predicted(max_id=64).training_ids(task, sample, stream(1, "ids", torch.arange(4)))
    batch = Batch(sample, ids, stream(0, "batch", torch.arange(4)), task)
    objective = IdLoss(on=on)
    expected = objective.losses(ours, run_forward([objective], ours, batch)).sum()
    tokens, places, mask = padded(sample, ids, side)
    answers, _, _ = padded(sample, ids, side)
    labels = torch.full_like(tokens, -100)
    for row, (prompt, count) in enumerate(zip(sample.prompt_tokens.tolist(), sample.num_tokens.tolist(), strict=True)):
        start = labels.shape[1] - count if side == "left" else 0
        labels[row, start + prompt : start + count] = answers[row, start + prompt : start + count]
    theirs.config.id_loss_on = on
    given = {"input_ids": tokens, "position_ids": places, "attention_mask": mask, "labels": labels}
    found = theirs(**given)
    count = int((labels != -100).sum())
    torch.testing.assert_close(found.id_loss * count, expected.detach(), rtol=1e-4, atol=1e-4)
    halves = [theirs(**{k: v[part] for k, v in given.items()}, num_items_in_batch=count) for part in ([0, 1], [2, 3])]
    torch.testing.assert_close(sum(half.loss for half in halves), found.loss, rtol=1e-4, atol=1e-4)
    told = theirs(**given, prompt_tokens=sample.prompt_tokens)
    torch.testing.assert_close(told.loss, found.loss)
    theirs.config.id_loss_on = "answer"


def prompts(both):
    """Return the prompts of the sample, padded on the left, with IDs and masks."""
    task, _, _, sample = both
    only = sample.prompt_only()
    ids = lr.Predicted(max_id=64).evaluation_ids(task, only, None)
    columns = int(sample.prompt_tokens.max())
    tokens, places, mask = (torch.zeros(len(ids), columns, dtype=torch.long) for _ in range(3))
    for row, count in enumerate(sample.prompt_tokens.tolist()):
        here = slice(columns - count, columns)
        tokens[row, here], places[row, here], mask[row, here] = only.tokens[row, :count], ids[row, 0, :count], 1
    return tokens, places, mask


@pytest.mark.parametrize("use_cache", [True, False])
def test_generation_of_ragged_prompts_is_that_of_our_own_models(both, use_cache):
    task, ours, theirs, sample = both
    expected = generate(ours, task, lr.Predicted(max_id=64), sample)
    tokens, ids, mask = prompts(both)
    budget = int((sample.num_tokens - sample.prompt_tokens).max())
    options = {"max_new_tokens": budget, "eos_token_id": task.stop_token, "use_cache": use_cache}
    found, places = write(theirs, tokens, ids, attention_mask=mask, **options)
    for row, (start, end) in enumerate(zip(sample.prompt_tokens.tolist(), sample.num_tokens.tolist(), strict=True)):
        answer = expected.tokens[row, start:end].tolist()
        count = answer.index(task.stop_token) + 1 if task.stop_token in answer else len(answer)
        here, there = slice(start, start + count), slice(tokens.shape[1], tokens.shape[1] + count)
        assert expected.tokens[row, here].tolist() == found[row, there].tolist()
        assert expected.ids[row, 0, here].tolist() == places[row, there].tolist()
        alone = write(theirs, tokens[row : row + 1, -start:], ids[row : row + 1, -start:], **options)
        assert alone[0][0, start:].tolist() == found[row, tokens.shape[1] :].tolist()[: alone[0].shape[1] - start]
        assert alone[1][0, start:].tolist() == places[row, tokens.shape[1] :].tolist()[: alone[0].shape[1] - start]


def test_generation_stops_samples_and_keeps_to_the_ids_of_prompts(both):
    _, _, theirs, _ = both
    tokens, ids, mask = prompts(both)
    given = {"attention_mask": mask, "max_new_tokens": 6}
    greedy, places = write(theirs, tokens, ids, **given)
    assert torch.equal(theirs.generate(tokens, position_ids=ids, eos_token_id=None, do_sample=False, **given), greedy)
    stop = int(greedy[0, tokens.shape[1] + 1])
    stopped, _ = write(theirs, tokens, ids, eos_token_id=stop, pad_token_id=7, **given)
    answer = stopped[0, tokens.shape[1] :].tolist()
    assert answer[1:] == [stop] + [7] * (len(answer) - 2)
    drawn = []
    for options in ({"top_k": 1}, {"temperature": 3.0}, {"temperature": 3.0}):
        torch.manual_seed(5)
        drawn.append(write(theirs, tokens, ids, do_sample=True, **options, **given)[0])
    assert torch.equal(drawn[0], greedy)
    assert torch.equal(drawn[1], drawn[2])
    assert not torch.equal(drawn[1], greedy)
    torch.manual_seed(5)
    several, _ = write(theirs, tokens, ids, do_sample=True, temperature=3.0, num_return_sequences=2, **given)
    assert several.shape[0] == 8
    static, at = write(theirs, tokens, ids, cache_implementation="static", disable_compile=True, **given)
    assert torch.equal(static, greedy)
    assert torch.equal(at, places)
    _, inside = write(theirs, tokens, ids, prompt_ids_only=True, **given)
    for row, prompt in zip(inside.tolist(), ids.tolist(), strict=True):
        assert set(row) <= {0, *prompt}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_beams": 2}, "cannot generate by beam_search: only greedily"),
        ({"assistant_model": tiny("llama")}, "cannot generate with assistant_model: leave it out"),
        ({"prompt_lookup_num_tokens": 3}, "cannot generate by assisted_generation"),
        ({"attention_mask": torch.ones(2, 5).long().index_fill(1, torch.tensor([4]), 0)}, "padded on the left"),
        ({"position_ids": None}, "generate needs the position_ids of the prompt"),
        ({"position_ids": LEVELS[..., :5]}, r"position_ids must have the shape \[batch, tokens\], got \[2, 3, 5\]"),
        ({"position_ids": IDS}, r"position_ids of \[2, 10\] and a mask of \[2, 5\] do not fit"),
        ({"past_key_values": DynamicCache()}, "cannot generate with past_key_values"),
        ({"output_attentions": True}, "cannot generate with output_attentions"),
    ],
)
def test_other_ways_to_generate_are_refused_in_one_line(options, complaint):
    model = lr.with_position_head(tiny("llama"))
    with pytest.raises(BadInput, match=complaint) as refused:
        model.generate(TOKENS[:, :5], **{"position_ids": IDS[:, :5], "max_new_tokens": 2, **options})
    assert "\n" not in str(refused.value)


def refused_models():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    yield lambda: tiny("bloom", n_layer=1, n_head=4), {}, "bloom models have no rotary positions"
    yield lambda: tiny("gpt2", n_embd=32, n_layer=1, n_head=4), {}, "gpt2 models have no rotary positions"
    yield lambda: tiny("llama", rope_parameters=rope), {}, "RoPE of type dynamic depends on the largest position ID"
    yield lambda: lr.with_position_head(tiny("llama")), {}, "has a position head already"
    yield lambda: tiny("llama").model, {}, "predicts no tokens: load it with AutoModelForCausalLM"
    yield lambda: torch.nn.Linear(2, 2), {}, "expected a causal language model of Hugging Face, got Linear"
    yield lambda: tiny("llama"), {"kind": "tabel"}, "kind must be one of pointer, table, got 'tabel'"
    yield lambda: tiny("llama"), {"kind": "table"}, "position head table needs max_id"
    yield lambda: tiny("llama"), {"id_loss_on": "prompt"}, "id_loss_on must be one of answer, all"
    yield lambda: tiny("llama"), {"level_sizes": (3,)}, "level_sizes must start with 0"
    yield lambda: tiny("llama"), {"move": 2}, "moves"


@pytest.mark.parametrize(("model", "options", "complaint"), list(refused_models()))
def test_models_and_settings_that_cannot_serve_are_refused_in_one_line(model, options, complaint):
    with pytest.raises(BadInput, match=complaint) as refused:
        lr.with_position_head(model(), **options)
    assert "\n" not in str(refused.value)


def test_ids_out_of_reach_and_missing_ids_are_refused():
    model = lr.with_position_head(tiny("llama"))
    far = IDS.clone()
    far[0, 7] = 50
    with pytest.raises(BadInput, match=r"the pointer cannot reach the position ID \[50\]: raise moves, or let IDs"):
        model(input_ids=TOKENS, position_ids=far, labels=LABELS)
    one, all_rows = (model(input_ids=TOKENS, position_ids=ids, labels=LABELS).loss for ids in (IDS[:1], IDS[[0, 0]]))
    torch.testing.assert_close(one, all_rows)
    with pytest.raises(BadInput, match="labels need position_ids"):
        model(input_ids=TOKENS, labels=LABELS)
    table = lr.with_position_head(tiny("llama"), "table", max_id=19)
    with pytest.raises(BadInput, match=r"the table cannot reach the position ID \[20\]: max_id is 19"):
        table(input_ids=TOKENS, position_ids=IDS, labels=LABELS)
    with pytest.raises(BadInput, match="position_ids are missing: this model reads them at 1 levels"):
        table(input_ids=TOKENS)


@pytest.mark.parametrize("levels", [1, 3])
def test_attention_is_never_cut_and_the_head_computes_in_fp32(levels, tmp_path):
    ids, options = KINDS[0 if levels == 1 else 2]
    model = lr.with_position_head(tiny("llama", tie_word_embeddings=True), **options)
    lr.check_attention_uncut(model)
    lr.check_attention_uncut(model, lr.UncutCollator())
    model.save_pretrained(tmp_path)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.language_model.lm_head.weight is half.language_model.model.embed_tokens.weight
    assert {weight.dtype for weight in half.position_head.parameters()} == {torch.float32}
    assert {weight.dtype for weight in half.language_model.parameters()} == {torch.bfloat16}
    assert json.loads((tmp_path / "config.json").read_text())["text_config"]["model_type"] == "llama"
    expected = model(input_ids=TOKENS, position_ids=ids, labels=LABELS).loss
    half.train()
    half.gradient_checkpointing_enable({"use_reentrant": False})
    loss = half(input_ids=TOKENS, position_ids=ids, labels=LABELS).loss
    torch.testing.assert_close(loss, expected, rtol=0.05, atol=0)
    loss.backward()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(input_ids=TOKENS, position_ids=ids, labels=LABELS)
    torch.testing.assert_close(mixed.loss.float(), expected, rtol=0.05, atol=0)
    assert half.language_model.model.layers[0].self_attn.k_proj.weight.grad.abs().max() > 0
    assert half.position_head.keys.weight.grad.abs().max() > 0


@pytest.mark.parametrize("case", [0, 1])
def test_adapters_go_around_the_head(case, tmp_path):
    ids, options = KINDS[case]
    parts = ["position_head", "id_embedding"][: case + 1]
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=parts, task_type="CAUSAL_LM")
    model = peft.get_peft_model(lr.with_position_head(tiny("llama"), **options), settings)
    given = {"input_ids": TOKENS, "position_ids": ids, "labels": LABELS}
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], 1e-2)
    losses = []
    for _ in range(4):
        loss = model(**given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    model.eval().save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(lr.with_position_head(tiny("llama"), **options, seed=1), tmp_path).eval()
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        if one.requires_grad:
            assert torch.equal(one, other)
    assert torch.equal(model(**given).id_loss, again(**given).id_loss)
    assert all(map(torch.equal, *(write(one, TOKENS[:, :5], IDS[:, :5]) for one in (model, again))))
    lr.check_attention_uncut(again)
    with pytest.raises(BadInput, match=r"add adapters last: get_peft_model\(with_position_head\(model\), LoraConfig"):
        lr.with_position_head(peft.get_peft_model(tiny("llama"), peft.LoraConfig(target_modules=["q_proj"])))


def test_weights_that_a_folder_lacks_are_drawn(tmp_path):
    model = lr.with_position_head(tiny("llama"), "table", max_id=9)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if ".mix." not in name and "id_" not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    again = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weight) for name, weight in kept.items())
    mixed = again["position_head.features.mix.weight"]
    assert 0.01 < mixed.std() < 0.03
    assert not again["id_embedding.weight"].any()


def test_a_folder_cannot_name_a_kernel(tmp_path):
    lr.with_position_head(tiny("llama")).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for part in (config, config["text_config"]):
        part["attn_implementation"] = part["_attn_implementation"] = "some/kernel"
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.language_model.config._attn_implementation == "sdpa"
