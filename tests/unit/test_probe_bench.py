"""The comparison with ContextCite, with a stand-in for its package: nothing is fetched, no time is asserted."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from longreach.bench import Protocol, attribution, compare_attribution
from longreach.bench.citing import Citation
from longreach.cli.main import main
from longreach.errors import BadInput
from longreach.probe import HuggingFace
from longreach.probe.faithfulness import faithfulness

CONTEXT = "the cat sat . a dog ran . it was late ."
WORDS = ["[UNK]", "<u>", *sorted({*CONTEXT.split(), "ask"})]


class StandIn:
    """As much of ContextCiter as is used: sources are what lies between full stops, or words."""

    def __init__(self, model, tokenizer, context, query, source_type, generate_kwargs, num_ablations):
        self.model, self.tokenizer, self.query = model, tokenizer, query
        self.num_ablations, self.ablation_keep_prob, self.batch_size = num_ablations, 0.5, 1
        parts = [f"{part.strip()} ." for part in context.split(".") if part.strip()]
        self.sources = parts if source_type == "sentence" else context.split()
        self.num_sources = len(self.sources)
        self._response_ids = [3, 5, 4][: generate_kwargs["max_new_tokens"]]

    def _get_prompt_ids(self, mask=None, return_prompt=False):
        kept = (
            [part for part, keep in zip(self.sources, mask, strict=True) if keep] if mask is not None else self.sources
        )
        prompt = f"<u> {' '.join(kept)} {self.query}"
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
    citation = Citation(model, CONTEXT, "ask", source, answer_tokens=3, ablations=8)
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
    assert all(tuple(trial.lds) == attribution.KINDS for trial in found.trials)
    by_side = {trial.side: trial for trial in found.trials}
    # the last of the 17 tokens is never read; ours hides tokens, so every sequence is as long
    assert by_side["longreach, tokens, 96"].tokens == 96 * 16 / 3
    assert by_side["longreach, sentences, 16"].tokens == 16 * 16 / 3
    assert by_side["longreach, sentences, 16"].lds["hidden sentences"] > 0.5
    # weights shared out over tokens say of whole sentences what the weights of sentences say
    citation = Citation(model, CONTEXT, "ask", "sentence", 3, 16)
    kept, odds = citation.deleted(16)
    direct = faithfulness(citation.fit()[:2], kept, odds[:, :2]).median()
    assert by_side["context-cite, sentences, 16"].lds["deleted sentences"] == pytest.approx(float(direct))
    assert by_side["longreach, tokens, 96"].lds["hidden tokens"] > by_side["longreach, tokens, 32"].lds["hidden tokens"]
    json.dumps(found.to_json(), allow_nan=False)


def test_a_weight_that_is_shared_out_tells_the_same_of_masks_that_hide_whole_groups():
    group = torch.tensor([-1, 0, 0, 1, 2, 2, 2, -1])
    weights, kept = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1]]).bool()
    shared, tokens = attribution._shared_out(weights, group), attribution._on_tokens(kept, group)
    assert tokens[:, [0, 7]].all()
    torch.testing.assert_close(tokens.float() @ shared.T, kept.float() @ weights.T)


def test_weights_that_are_all_zero_foretell_nothing():
    kept, true = torch.tensor([[True, False], [False, True], [True, True]]), torch.tensor([[1.0], [2.0], [3.0]])
    assert attribution._median_lds(torch.zeros(1, 2), kept, true) == 0.0
    assert attribution._median_lds(torch.tensor([[1.0, 2.0]]), kept, true) == 1.0


def test_what_cannot_be_compared_is_refused(model, tmp_path, capsys):
    model.tokenizer.chat_template = None
    with pytest.raises(BadInput, match="no chat template"):
        compare_attribution(model, [CONTEXT], Protocol(query="ask"))
    (tmp_path / "empty.txt").write_text(" \n")
    for flags, complaint in (
        (["--masks", "4"], "masks"),
        (["--answer", "0"], "answer"),
        (["--keep", "1"], "keep"),
        ([], "has no words"),
    ):
        assert main(["bench", "probe", "nowhere", str(tmp_path / "empty.txt"), *flags]) == 2
        assert complaint in capsys.readouterr().err
