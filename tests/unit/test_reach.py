"""Reach of Hugging Face models: needles, likelihood of continuations, gains, contexts and the saved result."""

import json

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import longreach as lr
from longreach.config import Lengths
from longreach.errors import BadInput
from longreach.evaluation import ContextLoss, over_documents
from longreach.extension import ReachConfig, measure_model, pooled, retrieves_to, settle_contexts, texts_of, verdict
from longreach.extension.likelihood import CachedScorer, PlainScorer, cache_agrees, scorer
from longreach.extension.measure import loss_gains, with_opening
from longreach.extension.retrieval import VALUES, NeedleTexts, RetrievalScore, measure_retrieval
from longreach.probe import HuggingFace, LanguageModel
from longreach.text import Bytes, as_subwords

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
MODELS = {
    "Llama": SIZES,
    "Mistral": {**SIZES, "num_key_value_heads": 1, "sliding_window": 16},
    "GPTNeoX": SIZES,
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 256},
    "Gemma2": {**SIZES, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 64},
}
ENDS = {"bos_token_id": None, "eos_token_id": None}


def _model(kind, tokenizer=None, **changes):
    config = getattr(transformers, f"{kind}Config")(vocab_size=258, **{**MODELS[kind], **ENDS, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and "emb" not in name and "wte" not in name:
            weight.data *= 10  # attention is not even, so that positions matter
    return HuggingFace(model, kind, tokenizer)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The tokenizer of bytes as Hugging Face reads it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    as_subwords(Bytes()).save(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def llama(tokenizer):
    return _model("Llama", tokenizer, max_position_embeddings=256)


STORY = "the old king went to the river and saw that no one had come home before him . "


@pytest.fixture(scope="module")
def texts(llama):
    return texts_of(llama, [STORY * 60, STORY[7:] * 40])


@pytest.fixture(scope="module")
def needle_texts(llama, texts):
    return NeedleTexts(llama, texts, 700, 0)


@pytest.mark.parametrize("kind", MODELS)
def test_values_have_the_likelihood_of_plain_passes(kind):
    model = _model(kind)
    prefix = torch.arange(3 * 40).view(3, 40) * 7 % 258
    values = [[[5], [6, 7], [8, 9, 10 + row]] for row in range(3)]
    assert cache_agrees(model)
    assert type(scorer(model, 512)) is CachedScorer
    model.memory = 3 << 12  # continuations are computed in several parts
    for scored in (CachedScorer(model, 512)(prefix, values), PlainScorer(model, 80)(prefix, values)):
        for row in range(3):
            for number, value in enumerate(values[row]):
                tokens = torch.tensor([*prefix[row].tolist(), *value])[None]
                with torch.no_grad():
                    likely = model.model(tokens, use_cache=False).logits[0].double().log_softmax(-1)
                expected = sum(likely[39 + place, token] for place, token in enumerate(value))
                assert scored[row, number].item() == pytest.approx(expected.item(), abs=1e-4)


def test_a_cache_that_is_not_read_is_not_used(monkeypatch):
    model = _model("Llama")
    forward = model.model.forward

    def forgetful(input_ids, attention_mask, past_key_values=None, **rest):
        return forward(input_ids=input_ids, attention_mask=attention_mask[:, -input_ids.shape[1] :], **rest)

    monkeypatch.setattr(model.model, "forward", forgetful)
    assert not cache_agrees(model)
    assert type(scorer(model, 512)) is PlainScorer


def test_values_of_one_token_take_one_pass(llama):
    prefix = torch.arange(2 * 20).view(2, 20)
    before = llama.work.forwards
    one = CachedScorer(llama, 512)(prefix, [[[3], [4]]] * 2)
    assert torch.equal(one, PlainScorer(llama, 512)(prefix, [[[3], [4]]] * 2))
    assert llama.work.forwards == before


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 4), st.integers(256, 700), st.sampled_from([(0.0, 0.5, 1.0), (0.3,)]))
def test_questions_have_the_size_of_the_context_and_their_needles(llama, needle_texts, needles, context, depths):
    found = list(needle_texts.questions(context, needles, depths, 2))
    assert len(found) == 2 * len(depths)
    for number, question in enumerate(found):
        assert len(question.prefix) == context
        text = llama.tokenizer.decode(question.prefix)
        before, _, asked = text.rpartition("\nThe code of ")
        assert asked.endswith(" is ")
        assert text.count("The code of ") == needles + 1
        values = [llama.tokenizer.decode(value) for value in question.values]
        assert values == list(VALUES)
        if needles:
            sentence = f"\nThe code of {asked}{VALUES[question.true]}.\n"
            assert before.count(sentence.rstrip("\n")) == 1
            rest = before.replace(sentence, "|")
            other = [part for part in rest.split("\n") if not part.startswith("The code of")]
            place = "".join(other).index("|") / (len("".join(other)) - 1)
            assert place == pytest.approx(depths[number // 2], abs=33 / (context / 4))


def test_questions_at_all_contexts_ask_for_the_same_values(needle_texts):
    asked = [
        [question.true for question in needle_texts.questions(context, needles, (0.0, 1.0), 8)]
        for context, needles in ((300, 0), (700, 0), (700, 4))
    ]
    assert asked[0] == asked[1] == asked[2]
    assert sorted(asked[0]) == list(range(16))  # guessing one word is right in exactly one of 16


class _Lookup(LanguageModel):
    """Predicts the token that followed the longest earlier match of the last tokens."""

    name, vocabulary_size, longest, heads, numbers_per_token = "lookup", 258, None, 1, 1
    device = torch.device("cpu")

    def scores(self, tokens, positions, keep, at):
        logits = torch.zeros(len(tokens), len(at), 258)
        for number, row in enumerate(tokens.tolist()):
            text = bytes(max(0, token - 2) for token in row)
            for place, last in enumerate(at.tolist()):
                for size in range(min(40, last), 0, -1):
                    found = text[:last].rfind(text[last + 1 - size : last + 1])
                    if found >= 0:
                        logits[number, place, row[found + size]] = 9
                        break
        return logits


def test_a_model_that_looks_up_finds_every_needle_and_guesses_without(needle_texts):
    cells = needle_texts.cells((64, 512), (1, 4))
    assert cells == [(512, 0), (512, 1), (512, 4)]  # 64 bytes have no room for a needle and text
    rows = lambda context: 4  # noqa: E731
    found = measure_retrieval(
        PlainScorer(_Lookup(), 4096), needle_texts, cells, (0.0, 0.5, 1.0), 16, rows, torch.device("cpu")
    )
    assert [score.depth for score in found] == [None, *(0.0, 0.5, 1.0) * 2]
    assert (found[0].right, found[0].questions) == (3, 48)
    assert all(score.right == score.questions == 16 for score in found[1:])


def test_retrieval_ends_before_the_first_context_that_is_clearly_below():
    scores = [
        RetrievalScore(context, 1, depth, right, 10)
        for context, rights in ((128, (9, 6)), (256, (10, 6)), (512, (5, 1)), (1024, (10, 10)))
        for depth, right in zip((0.0, 1.0), rights, strict=True)
    ]
    assert [(one.context, one.right, one.questions) for one in pooled(scores, 1)][2:] == [(512, 6, 20), (1024, 20, 20)]
    assert retrieves_to(scores, 1) == 256  # at 128, 15 of 20 are too few, but not clearly
    assert retrieves_to(scores[4:], 1) == 0
    assert retrieves_to(scores, 4) == 0


def test_a_gain_is_the_difference_of_losses_on_the_same_tokens():
    nats = torch.rand(3, 40, generator=torch.Generator().manual_seed(0))
    document = torch.arange(40) // 10
    empty = torch.zeros(40, dtype=torch.long)
    gains = loss_gains(ContextLoss((8, 16, 24), nats, torch.zeros(3, 40, dtype=torch.bool), empty, empty, document))
    assert [gain.context for gain in gains] == [16]  # half of 24 was not measured
    mean, low, high = over_documents((nats[0] - nats[1])[None], document)
    expected = [float(figure) for figure in (mean, low, high)]
    assert [gains[0].nats, gains[0].low, gains[0].high] == pytest.approx(expected, abs=1e-6)


def test_windows_begin_with_the_tokens_that_open_every_text():
    seen = []

    def predict(tokens, last):
        seen.append((tokens.tolist(), last))
        return torch.zeros(2, last), torch.zeros(2, last, dtype=torch.bool)

    tokens = torch.arange(10).view(2, 5)
    with_opening(predict, [77, 78])(tokens, 2)
    with_opening(predict, [77, 78])(tokens, 4)
    assert seen == [([[77, 78, 2, 3, 4], [77, 78, 7, 8, 9]], 2), ([[77, 1, 2, 3, 4], [77, 6, 7, 8, 9]], 4)]
    assert with_opening(predict, []) is predict


def test_questions_begin_with_the_tokens_that_open_every_text(llama, tokenizer, tmp_path):
    from tokenizers.processors import TemplateProcessing

    tokenizer.save_pretrained(tmp_path)
    other = transformers.AutoTokenizer.from_pretrained(tmp_path)
    around = TemplateProcessing(single="<end> $A <pad>", special_tokens=[("<pad>", 0), ("<end>", 1)])
    other.backend_tokenizer.post_processor = around
    model = HuggingFace(llama.model, "Llama", other)
    assert llama.opening == []
    assert model.opening == [1]  # the token at the end is not one of them
    texts = texts_of(model, [STORY * 60])
    assert not {0, 1} & set(texts.documents.tokens.tolist())
    for question in NeedleTexts(model, texts, 300, 0).questions(300, 1, (0.0, 1.0), 1):
        assert question.prefix[0] == 1
        assert len(question.prefix) == 300


@pytest.mark.parametrize(
    ("kind", "changes", "words", "contexts", "note"),
    [
        ("Llama", {"max_position_embeddings": 128}, 400, "16,32,64,128,256", ""),
        (
            "Llama",
            {"max_position_embeddings": 1024},
            10,
            "128,256,512",
            "contexts 1024, 2048 are left out: no two parts",
        ),
        ("GPT2", {"n_positions": 192}, 400, "16,32,64,128", "contexts 256 are left out: GPT2 (fp32) has 192"),
        ("GPT2", {}, 400, "32,64,128,192", "contexts 256, 512 are left out: GPT2 (fp32) has 256 learned positions"),
    ],
)
def test_default_contexts_go_to_twice_the_trained_length(tokenizer, kind, changes, words, contexts, note):
    model = _model(kind, tokenizer, **changes)
    found, notes = settle_contexts(model, texts_of(model, [STORY * (words // 5 + 14)]))
    assert str(found) == contexts
    assert len(notes) == bool(note)
    assert all(line.startswith(note) for line in notes)


def test_a_short_text_is_refused(tokenizer, llama):
    with pytest.raises(BadInput, match="two parts of the text have at most 40 tokens each, and a context of 32 needs"):
        settle_contexts(llama, texts_of(llama, ["x" * 80]))
    with pytest.raises(BadInput, match=r"Llama .fp32. has no tokenizer: it needs a prepared corpus"):
        texts_of(_model("Llama"), ["x"])
    with pytest.raises(BadInput, match=r"GPT2LMHeadModel .fp32. has 256 positions, and 320 were asked for"):
        lr.reach(_model("GPT2").model, __file__, tokenizer=tokenizer, contexts="64,256")


def test_reach_measures_a_model_in_memory_and_saves_it(llama, tokenizer, tmp_path):
    text = tmp_path / "story.txt"
    text.write_text(STORY * 60)
    found = lr.reach(
        llama.model, text, tokenizer=tokenizer, contexts=[64, 128, 256], samples=256, questions=1, out=tmp_path / "out"
    )
    texts = texts_of(llama, [STORY * 60])
    config = ReachConfig(contexts=Lengths((64, 128, 256)), samples=256, questions=1)
    assert measure_model(llama, texts, config) == found.measured["as it is"]
    assert str(found) == verdict(found.measured["as it is"])
    saved = lr.ReachResult.load(tmp_path / "out" / "reach.json")
    assert saved == found
    assert json.loads((tmp_path / "out" / "reach.json").read_text())["schema"] == 1
    page = (tmp_path / "out" / "reach.html").read_text()
    assert "<script" not in page
    (tmp_path / "out" / "reach.html").unlink()
    assert lr.report(tmp_path / "out") == tmp_path / "out" / "reach.html"
    assert (tmp_path / "out" / "reach.html").read_text() == page


def test_a_model_with_adapters_is_measured_and_stays_in_training(llama, tokenizer):
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(target_modules=["q_proj"], r=2, init_lora_weights=False)
    with torch.random.fork_rng():
        adapted = peft.get_peft_model(_model("Llama").model, settings).train()
    asked = {"tokenizer": tokenizer, "contexts": "64", "samples": 64, "retrieval": False, "progress": False}
    found = lr.reach(adapted, __file__, **asked)
    assert adapted.training
    adapted.base_model.model.model.layers[0].eval()
    lr.reach(adapted, __file__, **asked)
    assert adapted.training
    assert not adapted.base_model.model.model.layers[0].training
    assert found.measured["as it is"] != lr.reach(llama.model, __file__, **asked).measured["as it is"]
    with torch.random.fork_rng():
        prompts = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
        prompted = peft.get_peft_model(_model("Llama").model, prompts)
    with pytest.raises(BadInput, match="adds virtual tokens to texts, which is not measured"):
        lr.reach(prompted, __file__, **asked)
    with pytest.raises(BadInput, match="gpt2"):
        lr.reach(_model("GPT2").model, __file__, **asked, encodings=("yarn",))
    merged = adapted.merge_and_unload().eval()
    again = lr.reach(merged, __file__, **asked).measured["as it is"]
    pairs = zip(found.measured["as it is"].losses, again.losses, strict=True)
    assert all(one.nats == pytest.approx(other.nats, abs=1e-4) for one, other in pairs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"needles": (1, 1)}, "needles must be different numbers, got 1, 1"),
        ({"depths": ()}, "depths must be different numbers, got none"),
        ({"depths": (-0.1,)}, "depths must be from 0 to 1, got -0.1"),
        ({"questions": 0}, "questions must be at least 1"),
        ({"contexts": "x"}, "contexts: expected lengths"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(llama, tokenizer, change, message):
    with pytest.raises(BadInput) as error:
        lr.reach(llama.model, __file__, tokenizer=tokenizer, **change)
    assert message in str(error.value)
    assert "--" not in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="expected a causal language model of Hugging Face, got Linear"):
        lr.reach(torch.nn.Linear(2, 2), __file__)


def test_a_damaged_result_is_one_line(tmp_path):
    for content in ("{", "{}", '{"schema": 2}', '{"schema": 1, "measured": {"a": {}}}', "[]"):
        (tmp_path / "reach.json").write_text(content)
        with pytest.raises(BadInput, match=r"reach\.json is damaged") as error:
            lr.report(tmp_path)
        assert "\n" not in str(error.value)
