"""Kinds of token, intervals over documents, and what many probes say together."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probes import probed

from longreach.probe.bootstrap import estimate, mean, quantile
from longreach.probe.kinds import KINDS, token_kinds
from longreach.probe.summary import group_probes, summarise, to_csv, to_json


@pytest.mark.parametrize(
    ("pieces", "kinds"),
    [
        (("The", " cat", "alogue"), ("word start", "word start", "word continuation")),
        (
            (" don't", " un", "-", "do", "\n", "So"),
            ("word start", "word start", "punctuation", "word start", "whitespace", "word start"),
        ),
        ((" 1,954", "3.5", "x2", "2nd"), ("number", "number", "other", "other")),
        ((" (", "...", " $", "  ", "\t"), ("punctuation", "punctuation", "punctuation", "whitespace", "whitespace")),
        (("", "\ufffd", "<|end|>"), ("other", "other", "other")),
        ((" été", " Tom", "'s", "名"), ("word start", "word start", "word continuation", "word continuation")),
    ],
)
def test_kinds_are_told_by_the_piece_and_the_one_before(pieces, kinds):
    assert tuple(token_kinds(pieces)) == kinds


@given(st.lists(st.text("aZ9 .\n\t'-$é名\ufffd<", max_size=4), min_size=1, max_size=8))
def test_every_piece_has_a_kind(pieces):
    assert all(kind in KINDS for kind in token_kinds(pieces))


floats = st.lists(st.floats(-100, 100), min_size=1, max_size=9).map(np.array)


@given(st.lists(floats, min_size=1, max_size=5), st.sampled_from([0.1, 0.5, 0.9]))
def test_figures_are_those_of_all_targets_together(documents, share):
    together = np.concatenate(documents)
    (found,) = estimate(documents, quantile(share))
    assert found.value == np.quantile(together, share, method="inverted_cdf")
    assert (found.documents, found.targets) == (len(documents), len(together))
    (found,) = estimate(documents, mean)
    assert found.value == pytest.approx(together.mean())


@given(st.lists(floats, min_size=2, max_size=5))
def test_more_tokens_of_the_same_kind_do_not_narrow_an_interval(documents):
    (few,) = estimate(documents, mean)
    (many,) = estimate([np.tile(document, 10) for document in documents], mean)
    assert (few.low, few.high) == (pytest.approx(many.low), pytest.approx(many.high))


def test_more_documents_narrow_an_interval_and_one_has_none():
    documents = [np.array([float(number % 2)]) for number in range(64)]
    (wide,), (narrow,) = estimate(documents[:8], mean), estimate(documents, mean)
    assert wide.low < narrow.low < 0.5 < narrow.high < wide.high
    (alone,) = estimate([np.array([1.0, 2.0, 3.0])], mean)
    assert (alone.value, alone.low, alone.high) == (2.0, None, None)
    assert estimate([np.array([])], mean) == []


def test_an_interval_of_the_mean_covers_the_truth_as_often_as_it_says():
    # texts differ by 1, their tokens by 0.1: an interval over tokens would cover far less often
    normal = torch.Generator().manual_seed(0)
    hits = 0
    for _ in range(60):
        centres = torch.randn(30, 1, generator=normal)
        texts = centres + 0.1 * torch.randn(30, 20, generator=normal)
        (found,) = estimate([text.double().numpy() for text in texts], mean)
        hits += found.low <= 0 <= found.high
    assert hits >= 52


def test_endless_values_stay_at_the_end():
    (found,) = estimate([np.array([1.0, 2.0, math.inf])] * 3, quantile(0.9))
    assert found.value == math.inf
    (found,) = estimate([np.array([1.0, 2.0, math.inf])] * 3, quantile(0.5))
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)


def _figure(rows, *key):
    (row,) = (row for row in rows if (row.quantity, row.by, row.bin, row.statistic) == key)
    return row.estimate


def test_a_summary_says_what_a_count_by_hand_says():
    rows = summarise([probed()])  # k by weights 1, 2, 0; enough 1, 2, more than tried
    assert _figure(rows, "k_weights", "all", "all", "median").value == 1
    assert _figure(rows, "k_sufficient", "all", "all", "p90").value == math.inf
    assert _figure(rows, "k_sufficient", "at_most", "2", "share").value == pytest.approx(2 / 3)
    assert _figure(rows, "k_weights", "kind", "word start", "median").value == 1
    assert _figure(rows, "k_weights", "kind", "punctuation", "median").targets == 1
    assert _figure(rows, "span", "position", "2..4", "median").value == 2
    assert _figure(rows, "k_weights", "loss", "0.5..1", "median").value == 0
    assert _figure(rows, "faithfulness", "all", "all", "mean").targets == 2  # the third has none
    assert _figure(rows, "excess_loss", "kept", "0", "mean").value == pytest.approx((2.0 + 1.0 + 0.4) / 3)


def test_documents_that_were_probed_otherwise_are_never_put_together():
    few = replace(probed(), settings=replace(probed().settings, masks=64))
    assert list(group_probes([probed(), probed()])) == ["all"]
    groups = group_probes([probed(), few, probed()])
    assert {name: len(members) for name, members in groups.items()} == {"masks 64": 1, "masks 256": 2}
    other = replace(few, model="another (fp32)")
    assert set(group_probes([few, other])) == {"tiny (fp32)", "another (fp32)"}


def test_models_of_the_same_name_are_never_put_together():
    one, other = (replace(probed(), model_fingerprint=letter * 64) for letter in "ab")
    assert list(group_probes([one, one])) == ["all"]
    groups = group_probes([one, other, probed()])  # the last is a record of before
    assert set(groups) == {"tiny (fp32) #aaaaaa", "tiny (fp32) #bbbbbb", "tiny (fp32)"}
    assert groups["tiny (fp32) #bbbbbb"][0].model == "tiny (fp32) #bbbbbb"


def test_texts_of_the_same_name_are_documents_of_their_own():
    one, other = (replace(probed("notes, tokens 0..5"), text_fingerprint=letter * 64) for letter in "ab")
    again = replace(one, title="a copy, tokens 6..11")  # another name for the same text
    found = _figure(summarise([one, other, again]), "k_weights", "all", "all", "median")
    assert (found.documents, found.targets) == (2, 9)
    titles = [probe.title for probe in group_probes([one, other, again])["all"]]
    assert titles == ["notes #aaaaaa, tokens 0..5", "notes #bbbbbb, tokens 0..5", "a copy, tokens 6..11"]


def test_passages_of_one_text_are_one_document():
    cut = [probed("book, tokens 0..5"), probed("book, tokens 6..11"), probed("another")]
    found = _figure(summarise(cut), "k_weights", "all", "all", "median")
    assert (found.documents, found.targets) == (2, 9)
    alone = _figure(summarise(cut[:2]), "k_weights", "at_most", "1", "share")
    assert (alone.documents, alone.low) == (1, None)


def test_files_hold_every_row():
    rows = summarise([probed(), probed("b")])
    from_json = json.loads(to_json(rows))
    from_csv = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert len(from_json) == len(from_csv) == len(rows)
    endless = {(row["quantity"], row["statistic"]) for row in from_json if row["value"] == "inf"}
    assert endless == {("k_sufficient", name) for name in ("median", "p75", "p90")}  # the median: of the full stop
    assert {row["by"] for row in from_csv} == {"all", "at_most", "kind", "position", "loss", "entropy", "kept"}
