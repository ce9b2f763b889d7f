"""Predicted growth of errors: heads by margin, and what they say about trained models."""

import csv
import json
import math
from dataclasses import replace

import pytest
import torch
from helpers import TINY, execute_in

from longreach.api import EvalConfig, ExecutionConfig, Lengths, ParityScratchpad, Planted, RunConfig, Span, TrainConfig
from longreach.attention import AttentionConfig
from longreach.cli.main import main
from longreach.config import build_part
from longreach.positions.encodings import EncodingConfig
from longreach.reports.growth import GrowthComparison, Measured, PredictedErrors, compare
from longreach.seeding import stream
from longreach.tasks.planted_laws import FixedGaps, SumMod, TableLabel, UniformTokens, WeightedTokens, WindowPositions
from longreach.theory import (
    ChainHead,
    CountHead,
    Dfa,
    GapTypes,
    GuessingDfa,
    SignalHeads,
    SparseHead,
    err_exact,
    from_task,
    match_margin,
    predict_growth,
    signal_heads,
)
from longreach.theory.growth import Limit
from longreach.theory.words import words


def sums(k, rho=0.0, width=4, p=4):
    return Planted(
        k=k,
        vocab_size=3,
        q_pos=WindowPositions(width=width),
        q_voc=UniformTokens(low=1, high=2),
        mu=WeightedTokens(probabilities=[1 - rho, rho / 2, rho / 2]),
        g_star=SumMod(p=p),
    )


def add_up(p):
    return Dfa((torch.arange(p)[:, None] + torch.arange(3)) % p, torch.eye(p, dtype=torch.float64))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("guesses", [False, True])
def test_counting_tokens_is_as_good_as_listing_sets(k, guesses):
    plain, law = add_up(4), torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64)
    dfa = GuessingDfa(plain.step, plain.output, law > 0, law) if guesses else plain
    u = torch.tensor([0.2, 1.0, 0.7], dtype=torch.float64)
    tokens = stream(0, "x", torch.arange(6)).below("x", 3, 9)
    counted = CountHead(k, u, dfa).mass(tokens)
    chain = ChainHead(u.repeat(k, 1), None, dfa)
    assert torch.allclose(counted, chain.mass(tokens), rtol=1e-12, atol=0)
    assert torch.allclose(chain.forward(tokens), chain.listed(9).forward(tokens), rtol=0, atol=1e-13)


def test_a_guessing_automaton_says_what_is_known():
    """One token of two is read: the other is 1 or 2, each with its probability."""
    plain, law = add_up(4), torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64)
    dfa = GuessingDfa(plain.step, plain.output, law > 0, law)
    said = dfa.answer(torch.tensor([[2, 0], [0, 2], [1, 2], [0, 0]]))
    assert said[0].tolist() == said[1].tolist() == [0.7, 0.0, 0.0, 0.3]
    assert said[2].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert said[3].tolist() == pytest.approx([0.49, 0.0, 0.09, 0.42])
    with pytest.raises(ValueError, match="no one last state"):
        dfa.run(torch.tensor([[0]]))


def test_an_automaton_that_minds_the_order_is_refused():
    last = Dfa(torch.tensor([[0, 1, 2]] * 3), torch.eye(3, dtype=torch.float64))  # the last token
    with pytest.raises(ValueError, match="that of 0 and 1"):
        CountHead(2, torch.ones(3, dtype=torch.float64), last)


@pytest.mark.parametrize("span", [None, 3])
@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_errors_are_those_of_the_table_head_that_is_written_down_by_hand(span, rho):
    """k = 2: a signal weighs 1, background e^-1.5; a set with one signal says it plus 1 or plus 2."""
    task, length = sums(2, rho), 7
    word = words(3, 2)
    g = torch.zeros(9, 4, dtype=torch.float64)
    for number, pair in enumerate(word.tolist()):
        read = [token for token in pair if token]
        for first in read[:1] or (1, 2):
            for second in read[1:] or (1, 2):
                g[number, (first + second) % 4] += 1 / (len(read[:1] or (1, 2)) * len(read[1:] or (1, 2)))
    types = GapTypes(2, length - 1 if span is None else span)
    weights = torch.exp(-1.5 * (word == 0).sum(1).double()).repeat(len(types.shapes), 1)
    exact = err_exact(SparseHead(types, weights, g), from_task(task), length)
    sampled = SignalHeads(task, length, span=span).errors(1.5, length, samples=20_000).loss
    assert sampled.mean == pytest.approx(exact, abs=4 * sampled.se)
    assert sampled.se < 0.003


@pytest.mark.parametrize("by", ["loss", "cross_entropy"])
@pytest.mark.parametrize("background", ["constant", "fading"])
@pytest.mark.parametrize(("k", "rho"), [(1, 0.0), (3, 0.0), (8, 0.02)])
def test_a_margin_is_found_again_from_its_errors(k, rho, background, by):
    heads = SignalHeads(sums(k, rho, width=13), 24, background)
    error = getattr(heads.errors(5.0, 24, samples=500), by).mean
    assert match_margin(heads, 24, error, by, samples=500) == pytest.approx(5.0, abs=0.002)


def test_wrong_answers_fix_the_least_margin_that_has_no_more_of_them():
    heads = SignalHeads(sums(4, width=13), 24)
    margin = match_margin(heads, 24, 0.1, samples=1000)
    assert heads.errors(margin, 24, samples=1000).wrong.mean <= 0.1
    assert heads.errors(margin - 0.01, 24, samples=1000).wrong.mean > 0.1


def test_margins_at_the_ends():
    heads = SignalHeads(sums(2, rho=0.1, width=13), 24)
    assert match_margin(heads, 24, 0.0, samples=200) == math.inf  # look-alikes mislead every head
    assert match_margin(heads, 24, 1.0, samples=200) == 0.0
    assert match_margin(SignalHeads(sums(2), 24, "none"), 24, 0.3) == math.inf
    with pytest.raises(ValueError, match="negative"):
        match_margin(heads, 24, -0.1)


def test_what_the_class_predicts():
    """Without look-alikes a constant background wins in the end, one that fades fast enough or weighs nothing never."""
    constant, fading, none = (SignalHeads(sums(4, width=13), 24, kind) for kind in ("constant", "fading", "none"))
    lengths = [24, 400, 100_000]
    grown = [errors.wrong.mean for errors in predict_growth(constant, 4.0, lengths, samples=400).values()]
    assert grown == sorted(grown)
    assert grown[0] == 0
    assert grown[-1] == pytest.approx(constant.limit(4.0).wrong, abs=0.08)
    assert constant.limit(4.0).wrong == pytest.approx(constant.chance)
    assert [errors.loss.mean for errors in predict_growth(none, 4.0, lengths, samples=50).values()] == [0, 0, 0]
    losses = [errors.loss.mean for errors in predict_growth(fading, 4.0, lengths, samples=50).values()]
    assert losses == sorted(losses, reverse=True)
    assert fading.limit(4.0) == none.limit(4.0) == (0.0, 0.0)
    assert fading.limit(2.0) == constant.limit(2.0)  # l tokens of weight l^-.63 are too many


def test_look_alikes_are_worse_for_heads_that_see_no_positions():
    local, blind = (signal_heads(sums(4, 0.02, width=13), 24, "none", sees) for sees in (True, False))
    assert (local.span, blind.span) == (12, None)
    assert local.errors(0.0, 200, samples=200).wrong.mean < 0.5 * blind.errors(0.0, 200, samples=200).wrong.mean


def test_heads_that_cannot_be_made_are_refused():
    with pytest.raises(ValueError, match="planted tasks only, got parity_scratchpad"):
        signal_heads(ParityScratchpad(), 24, "none", False)
    table = replace(sums(1), g_star=TableLabel(vocab_size=3, classes=[0, 1, 0]))
    with pytest.raises(ValueError, match="sum_mod"):
        signal_heads(table, 24, "none", False)
    gaps = replace(sums(3), q_pos=FixedGaps(gaps=[2, 3]))
    assert signal_heads(gaps, 24, "none", True).span == 5
    with pytest.raises(ValueError, match="samples"):
        SignalHeads(sums(1), 24).errors(1.0, 24, samples=1)


def comparison(measured, predicted, trained_to=24):
    return GrowthComparison(
        name="a", attention="softmax", k=2, rho=0.0, seeds=[0], trained_to=trained_to, chance=0.5, fixed_at=24,
        margins=[(1.0, 2.0)], measured={n: Measured((a + b) / 2, a, b, b) for n, (a, b) in measured.items()},
        predicted={n: PredictedErrors(a, b, a, b) for n, (a, b) in predicted.items()},
        limits=(Limit(0.0, 0.0), Limit(0.5, 0.5)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("at_50", "at_100", "word"),
    [
        ((0.1, 0.2), (0.3, 0.4), "as predicted"),
        ((0.3, 0.35), (0.3, 0.4), "grows faster"),
        ((0.1, 0.2), (0.0, 0.1), "grows slower"),
        ((0.3, 0.35), (0.0, 0.1), "another shape"),
    ],
)
def test_verdicts(at_50, at_100, word):
    predicted = {24: (0.0, 0.1), 50: (0.15, 0.25), 100: (0.35, 0.45)}
    assert comparison({24: (0.4, 0.5), 50: at_50, 100: at_100}, predicted).verdict == "not learned"
    assert comparison({24: (0.2, 0.21), 50: at_50, 100: at_100}, predicted).verdict == word  # 24 itself says nothing
    wide = {24: (0.0, 0.1), 50: (0.0, 0.5), 100: (0.0, 0.5)}
    assert comparison({24: (0.0, 0.1), 50: at_50, 100: at_100}, wide).verdict == "nothing excluded"


CONFIG = RunConfig(
    task=sums(2, 0.02, width=4),
    model=replace(TINY, encoding=build_part(EncodingConfig, "none", "encoding")),
    train=TrainConfig(lengths=Span(4, 8), steps=2, batch_size=4),
    evaluate=EvalConfig(lengths=Lengths((8, 16, 30)), samples=16, free_samples=0),
    execution=ExecutionConfig(log_every=1),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of one attention and one of another."""
    folder = tmp_path_factory.mktemp("planted")
    for seed in (0, 1):
        execute_in(folder / f"scaled/seed-{seed}", CONFIG, seed)
    top_k = build_part(AttentionConfig, {"name": "top_k", "keep": 2}, "attention")
    execute_in(folder / "top/seed-0", replace(CONFIG, model=replace(CONFIG.model, attention=top_k)))
    return folder


def test_runs_are_compared_by_setting(runs):
    found, unfinished = compare([runs], samples=200)
    assert not unfinished
    scaled, top = found
    assert (scaled.attention, scaled.k, scaled.rho, scaled.seeds) == ("scaled_softmax", 2, 0.02, [0, 1])
    assert (top.attention, top.seeds) == ("top_k", [0])
    assert list(scaled.measured) == list(scaled.predicted) == [8, 16, 30]
    assert scaled.fixed_at == 8
    assert all(low <= high for low, high in scaled.margins)
    assert top.margins == [(math.inf, math.inf)]
    for found_ in found:
        for length, measured in found_.measured.items():
            assert measured.low <= measured.wrong <= min(measured.high, measured.worst)
            assert 0 <= found_.predicted[length].low <= found_.predicted[length].high <= 1
    # where background weighs nothing, errors at the fixing length are matched by what no length changes
    assert top.predicted[8].low <= top.measured[8].wrong <= top.predicted[8].high
    assert compare([runs], at=16, samples=200)[0][0].fixed_at == 16
    assert compare([runs], by="loss", samples=200)[0][0].fixed_at is None


def test_the_command_prints_and_writes_a_comparison(runs, tmp_path, capsys):
    assert main(["theory", "compare", str(runs), "--out", str(tmp_path / "cmp")]) == 0
    printed = capsys.readouterr().out
    assert "scaled_softmax" in printed
    assert "verdict" in printed
    assert (tmp_path / "cmp" / "compare.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "cmp" / "compare.json").read_text())
    assert [row["attention"] for row in written] == ["scaled_softmax", "top_k"]
    assert written[1]["margins"] == [[None, None]]
    with (tmp_path / "cmp" / "compare.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6
    assert main(["theory", "compare", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict"]


def test_what_cannot_be_compared_is_refused_in_one_line(runs, tmp_path, capsys):
    def refused(*arguments):
        assert main(["theory", "compare", *map(str, arguments)]) == 2
        line = capsys.readouterr().err.strip()
        assert "\n" not in line
        return line

    assert "was not tested at length 9, but at 8, 16, 30" in refused(runs, "--at", 9)
    assert "a tested length has no say in it, got 16" in refused(runs, "--at", 16, "--by", "loss")
    other = replace(CONFIG, task=ParityScratchpad())
    execute_in(tmp_path / "parity", other)
    assert "errors are predicted for planted tasks only, got parity_scratchpad" in refused(tmp_path / "parity")
    stick = build_part(AttentionConfig, "stick_breaking", "attention")
    execute_in(tmp_path / "stick", replace(CONFIG, model=replace(CONFIG.model, attention=stick)))
    assert "no prediction for attention stick_breaking" in refused(tmp_path / "stick")
    far = replace(CONFIG, evaluate=replace(CONFIG.evaluate, lengths=Lengths((30,))))
    execute_in(tmp_path / "far", far)
    assert "tested at no training length" in refused(tmp_path / "far")
    assert "there is no" in refused(tmp_path / "nothing")
