"""The comparison with ContextCite, with a stand-in for its package: nothing is fetched, no time is asserted."""

import json
import re
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from longreach.bench import EveryTarget, Protocol, compare_attribution, compare_every_target
from longreach.bench.citing import AnswerCitation
from longreach.bench.citing_text import TokenCitation, WholeText
from longreach.bench.foretelling import lds, on_tokens, shared_out
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.probe import HuggingFace
from longreach.probe.faithfulness import faithfulness

CONTEXT = "the cat sat . a dog ran . it was late ."
WORDS = ["[UNK]", "<u>", *sorted({*CONTEXT.split(), "ask"})]


class Cut:
    def __init__(self, sources):
        self.sources = sources

    def get_context(self, mask=None):
        mask = [True] * len(self.sources) if mask is None else mask
        return " ".join(part for part, keep in zip(self.sources, mask, strict=True) if keep)


class StandIn:
    """As much of ContextCiter as is used: sources are what lies between full stops, or words."""

    def __init__(self, model, tokenizer, context, query, source_type, num_ablations, generate_kwargs=None):
        self.model, self.tokenizer, self.query = model, tokenizer, query
        self.num_ablations, self.ablation_keep_prob, self.batch_size = num_ablations, 0.5, 1
        parts = [part.strip() for part in re.findall(r"[^.]+\.?", context) if part.strip()]
        self.sources = parts if source_type == "sentence" else context.split()
        self.partitioner, self.num_sources = Cut(self.sources), len(self.sources)
        self._length = generate_kwargs and generate_kwargs["max_new_tokens"]

    @property
    def _response_ids(self):
        return [3, 5, 4][: self._length]

    def _get_prompt_ids(self, mask=None, return_prompt=False):
        prompt = f"<u> {self.partitioner.get_context(mask)} {self.query}"
        ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        return (ids, prompt) if return_prompt else ids

    def _get_attributions_for_ids_range(self, start, stop):
        if start == 2:
            raise ValueError("Input contains infinity")
        masks, odds = ablate(
            self.model, None, self.num_ablations, self.num_sources, self._get_prompt_ids, self._response_ids, 0.5, 1
        )
        x = np.concatenate([masks, np.ones((len(masks), 1))], axis=1)
        weights = np.linalg.lstsq(x, odds[:, start], rcond=None)[0]
        return weights[:-1], weights[-1]


def ablate(model, tokenizer, count, sources, get_prompt_ids, response, keep, batch_size, base_seed=0):
    masks = np.random.RandomState(base_seed).rand(count, sources) < keep
    odds = []
    for mask in masks:
        prompt = get_prompt_ids(mask=mask)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        p = logits.softmax(-1)[range(len(response)), response]
        odds.append(torch.logit(p).numpy())
    return masks, np.stack(odds)


@pytest.fixture
def model(monkeypatch):
    package, helpers = ModuleType("context_cite"), ModuleType("context_cite.utils")
    package.ContextCiter, helpers.get_masks_and_logit_probs = StandIn, ablate
    monkeypatch.setitem(sys.modules, "context_cite", package)
    monkeypatch.setitem(sys.modules, "context_cite.utils", helpers)
    plain = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]", chat_template="{{ messages }}")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=64, initializer_range=0.5, **shape)
    return HuggingFace(LlamaForCausalLM(config), "tiny", tokenizer)


@pytest.mark.parametrize(
    ("source", "groups"),
    [("sentence", [0] * 4 + [1] * 4 + [2] * 4), ("word", list(range(12)))],
)
def test_tokens_belong_to_the_part_of_the_context_that_they_are_deleted_with(model, source, groups):
    citation = AnswerCitation(model, CONTEXT, "ask", source, answer_tokens=3, ablations=8)
    # a mark in front; the question and the answer behind
    assert citation.group_of_token().tolist() == [-1, *groups, -1, -1, -1, -1]
    assert citation.targets.tolist() == [14, 15, 16]


def test_every_side_is_judged_on_the_same_targets_by_masks_of_every_kind(model):
    told, protocol = [], Protocol(query="ask", answer=3, masks=(32, 96), ablations=16, held_out=16)
    found = compare_attribution(model, [CONTEXT], protocol, told.append)
    assert [row.side for row in found.rows] == [
        "longreach, tokens, 32",
        "longreach, tokens, 96",
        "longreach, sentences, 16",
        "context-cite, sentences, 16",
        "context-cite, words, 16",
    ]
    assert tuple(told) == found.trials
    assert [trial.failed for trial in found.trials] == [0, 0, 0, 1, 1]
    kinds = {"deleted sentences", "deleted words", "hidden tokens", "hidden sentences"}
    assert all(set(trial.lds) == kinds for trial in found.trials)
    by_side = {trial.side: trial for trial in found.trials}
    # the last of the 17 tokens is never read; ours hides tokens, so every sequence is as long
    assert by_side["longreach, tokens, 96"].tokens == 96 * 16 / 3
    assert by_side["longreach, sentences, 16"].tokens == 16 * 16 / 3
    assert by_side["longreach, sentences, 16"].lds["hidden sentences"] > 0.5
    # weights shared out over tokens say of whole sentences what the weights of sentences say
    citation = AnswerCitation(model, CONTEXT, "ask", "sentence", 3, 16)
    kept, odds = citation.deleted(16)
    direct = faithfulness(citation.fit()[:2], kept, odds[:, :2]).mean()  # of two, it is the median too
    assert by_side["context-cite, sentences, 16"].lds["deleted sentences"] == pytest.approx(float(direct))
    assert by_side["longreach, tokens, 96"].lds["hidden tokens"] > by_side["longreach, tokens, 32"].lds["hidden tokens"]
    json.dumps(found.to_json(), allow_nan=False)


def test_the_context_of_a_token_is_the_text_between_the_first_word_and_the_token_read_last(model):
    text = WholeText(model, CONTEXT)
    assert text.targets(1).tolist() == list(range(3, 12))
    assert text.targets(4).tolist() == [3, 7, 11]
    citation = TokenCitation(text, 7, "sentence", ablations=8)
    assert citation._citer.sources == ["cat sat .", "a dog"]
    assert citation._citer._response_ids == [int(text.tokens[7])]
    assert citation._citer._get_prompt_ids() == text.tokens[:7].tolist()
    # a deleted source takes its tokens away; the first word and the token read last stay
    assert citation._citer._get_prompt_ids(mask=[False, True]) == text.tokens[[0, 4, 5, 6]].tolist()
    assert citation._citer._get_prompt_ids(mask=[False, False]) == text.tokens[[0, 6]].tolist()
    assert citation.group_of_token().tolist() == [-1, 0, 0, 0, 1, 1, -1, -1, -1, -1, -1, -1]
    # what ContextCite can delete is what ours can hide
    words = TokenCitation(text, 7, "word", ablations=8).group_of_token()
    assert torch.equal(words >= 0, text.free(torch.tensor([7]))[:, 0])


def test_words_are_not_cut_in_the_middle(model):
    letters = Tokenizer(models.WordLevel({"a": 0, "b": 1, " a": 2, " b": 3, "[UNK]": 4}, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w"), "isolated")
    model.tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="[UNK]")
    text = WholeText(model, "ab ba ab")
    assert text.targets(1).tolist() == [4, 5]
    # the token read last is the second letter of ba, then the first one of ab
    assert [text.can_be_cut(target) for target in (4, 5)] == [False, True]


def test_every_token_of_a_text_is_a_target_and_a_few_are_judged(model):
    told, protocol = [], EveryTarget(masks=(96, 32), ablations=16, held_out=16, sample=3)
    found = compare_every_target(model, [CONTEXT, CONTEXT[4:]], protocol, told.append)
    sides = ["longreach, tokens, 32", "longreach, tokens, 96", "context-cite, words, 16", "context-cite, sentences, 16"]
    assert [row.side for row in found.rows] == sides
    assert tuple(told) == found.trials
    few, many, words, _ = found.trials[:4]
    assert (few.targets, many.targets, words.targets) == (9, 9, 3)
    # the last of the 12 tokens is never read; masks of the larger number include those of the smaller one
    assert (few.tokens, many.tokens) == (32 * 11 / 9, 96 * 11 / 9)
    # targets 4, 7 and 10; about half of what precedes each is deleted, but not its first and its last token
    assert 16 * 3 < words.tokens < 16 * (5 + 8 + 11) / 3
    assert many.lds["hidden tokens"] > 0.5
    # the weights are those of one target's own regression
    text = WholeText(model, CONTEXT)
    alone = TokenCitation(text, 7, "word", 16)
    kept, odds = alone.deleted(16)
    direct = faithfulness(alone.fit(), kept, odds)
    one = compare_every_target(model, [CONTEXT], EveryTarget(masks=(8,), ablations=16, held_out=16, sample=1))
    assert one.rows[1].lds["deleted words"][0] == pytest.approx(float(direct))
    json.dumps(found.to_json(), allow_nan=False)


def test_a_text_of_which_context_cite_treats_no_target_is_refused(model, monkeypatch):
    def refuse(self, start, stop):
        raise ValueError("Input contains infinity")

    monkeypatch.setattr(StandIn, "_get_attributions_for_ids_range", refuse)
    with pytest.raises(BadInput, match="text 1: ContextCite could treat none of 2 targets"):
        compare_every_target(model, [CONTEXT], EveryTarget(masks=(8,), ablations=8, held_out=4, sample=2))


def test_a_weight_that_is_shared_out_tells_the_same_of_masks_that_hide_whole_groups():
    group = torch.tensor([-1, 0, 0, 1, 2, 2, 2, -1])
    weights, kept = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1]]).bool()
    shared, tokens = shared_out(weights, group), on_tokens(kept, group)
    assert tokens[:, [0, 7]].all()
    torch.testing.assert_close(tokens.float() @ shared.T, kept.float() @ weights.T)


def test_weights_that_are_all_zero_foretell_nothing():
    kept, true = torch.tensor([[True, False], [False, True], [True, True]]), torch.tensor([[1.0], [2.0], [3.0]])
    assert lds(torch.zeros(1, 2), kept, true) == 0.0
    assert lds(torch.tensor([[1.0, 2.0]]), kept, true) == 1.0


def test_what_cannot_be_compared_is_refused(model, tmp_path, capsys):
    model.tokenizer.chat_template = None
    with pytest.raises(BadInput, match="no chat template"):
        compare_attribution(model, [CONTEXT], Protocol(query="ask"))
    with pytest.raises(BadInput, match="too short"):
        compare_every_target(model, ["the cat sat"], EveryTarget())
    (tmp_path / "empty.txt").write_text(" \n")
    for flags, complaint in (
        (["--masks", "4"], "masks"),
        (["--answer", "0"], "answer"),
        (["--keep", "1"], "keep"),
        (["--sample", "3"], "--sample does not go with --targets answer"),
        (["--targets", "all", "--query", "why"], "--query does not go with --targets all"),
        (["--targets", "every", "0"], "every must be at least 1"),
        (["--targets", "last", "3"], "answer, all or every N"),
        (["--targets", "all", "--sources", "pages"], "sources"),
        ([], "has no words"),
    ):
        assert main(["bench", "probe", "nowhere", str(tmp_path / "empty.txt"), *flags]) == 2
        assert complaint in capsys.readouterr().err
