"""Inside a generation: the weights are those by which values are mixed, and every step is told as it happened."""

from dataclasses import replace

import pytest
import torch
from catalogue import ATTENTIONS, label
from helpers import TINY, draw, generate_the_truth, load_example

from longreach.api import (
    Addition,
    Coupled,
    GraphWalk,
    LearnedConfig,
    LearnedRopeConfig,
    NoEncodingConfig,
    ParityScratchpad,
    PointerChasing,
    PointerConfig,
    Predicted,
    RopeConfig,
    ScaledSoftmaxConfig,
    Sequential,
    SoftmaxConfig,
    Span,
    TableConfig,
    VariableAssignment,
    build_model,
)
from longreach.attention import Attention
from longreach.errors import BadInput
from longreach.evaluation import attention_figure, run_free
from longreach.evaluation.inside import verdict
from longreach.evaluation.look_inside import Truth, attention_weights, detail, look_inside, matching, sharing, watch
from longreach.positions.encodings import Bias, Shape

CHAIN = VariableAssignment(num_names=14, hops=Span(1, 3), echo=True, end="marked")
POINTER = replace(TINY, position_head=PointerConfig())
TABLE = replace(TINY, position_head=TableConfig(), encoding=LearnedRopeConfig(max_id=40))
CASES = {
    "pointer": (CHAIN, Predicted(max_id=40), POINTER),
    "table": (CHAIN, Predicted(max_id=40), TABLE),
    "rule": (ParityScratchpad(), Coupled(max_id=40), TINY),
    "count": (ParityScratchpad(), Sequential(), TINY),
    "one level": (Addition(), Predicted(max_id=40), POINTER),
    "two levels": (GraphWalk(num_names=8, steps=Span(1, 3)), Predicted(max_id=40), POINTER),
    "two growing levels": (PointerChasing(num_names=20), Predicted(max_id=40), POINTER),
    "a program": (load_example("programs").PointerChasing(), Predicted(max_id=40), POINTER),
}
GROWING = {"two growing levels": ["statement", "step"], "a program": ["statements", "marks"]}
"""Levels that grow with length."""


def _model(task, policy, config, seed=0, loud=12.0):
    """Fresh weights, so large that heads look at different tokens."""
    model = build_model(config, len(task.vocabulary), seed, policy.level_sizes(task), policy.max_id)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(loud)
    return model


def _look(name, seed=0, length=5):
    task, policy, config = CASES[name]
    model, sample = _model(task, policy, config, seed), draw(task, [length], seed=seed)
    return model, sample, look_inside(model, task, policy, sample, Truth.of_sample(task, policy, sample))


@pytest.mark.parametrize("attention", [SoftmaxConfig(), ScaledSoftmaxConfig(start=0.7)], ids=["softmax", "scaled"])
@pytest.mark.parametrize(
    "encoding", [NoEncodingConfig(), RopeConfig(), LearnedConfig(max_id=40)], ids=lambda e: type(e).__name__
)
def test_weights_times_values_are_what_attention_gives(attention, encoding):
    config = replace(TINY, attention=attention, encoding=encoding)
    task, policy = ParityScratchpad(), Coupled(max_id=40)
    model, sample = _model(task, policy, config), draw(task, [6, 4, 5])
    seen = []
    for block in model.blocks:
        block.attention.mix.register_forward_hook(lambda mix, given, mixed: seen.append((mix, given, mixed)))
    with torch.no_grad():
        model(sample.tokens, policy.evaluation_ids(task, sample))
    assert len(seen) == config.layers
    for mix, (q, k, v, visible, mask, bias), mixed in seen:
        weights = attention_weights(mix, q, k, visible, mask, bias)
        torch.testing.assert_close(weights @ v, mixed, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
        assert not weights.triu(1).any()
        assert weights[:, :, -1].amax(-1).max() > 0.25  # not a uniform blur, which proves little


@pytest.mark.parametrize("config", ATTENTIONS, ids=label)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_weights_honour_masks_and_biases(config, masked, biased):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=generator) for _ in range(3))
    added = torch.randn(2, 3, 5, 5, generator=generator)
    bias = Bias(lambda part: added[:, :, part]) if biased else None
    mask = (torch.rand(2, 1, 5, 5, generator=generator) < 0.6) | torch.eye(5, dtype=torch.bool) if masked else None
    mix = config.build(Shape(width=12, heads=3, level_sizes=(0,), max_id=0))
    visible = torch.arange(1, 6)[None]
    with torch.no_grad():
        weights = attention_weights(mix, q, k, visible, mask, bias)
        torch.testing.assert_close(weights @ v, mix(q, k, v, visible, mask, bias))


def test_an_attention_of_its_own_kind_is_refused():
    class Averaging(Attention):
        def forward(self, q, k, v, visible, mask, bias):
            return v

    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(BadInput, match="Averaging mixes values in a way of its own"):
        attention_weights(Averaging(), q, q, torch.tensor([[1, 2]]), None, None)


def test_watching_changes_nothing_and_leaves_nothing_behind():
    task, policy, config = CASES["rule"]
    model, sample = _model(task, policy, config), draw(task, [5])
    ids = policy.evaluation_ids(task, sample)
    with torch.no_grad():
        hidden, weights = watch(model, sample.tokens, ids, first=7)
        torch.testing.assert_close(hidden, model(sample.tokens, ids), rtol=0, atol=0)
        _, all_of_them = watch(model, sample.tokens, ids, first=0)
    assert weights.shape == (2, 2, sample.tokens.shape[1] - 7, sample.tokens.shape[1])
    torch.testing.assert_close(weights, all_of_them[:, :, 7:], rtol=0, atol=0)
    assert not any(block.attention.mix._forward_hooks for block in model.blocks)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_reading_again_tells_what_generation_did(name, seed):
    task, policy, _ = CASES[name]
    model, sample, inside = _look(name, seed)
    start = inside.prompt_tokens
    assert inside.weights.shape[2:] == (len(inside.steps), inside.ids.shape[1])
    torch.testing.assert_close(inside.weights.sum(-1), torch.ones(inside.weights.shape[:3]))
    for step in inside.steps:
        assert step.reads == inside.words[step.index]
        assert step.writes == inside.words[step.index + 1]
        if not step.given:  # the likeliest token was written
            assert step.token_probability == pytest.approx(float(inside.token_probabilities[step.number].max()))
        assert (step.ids is None) == (step is inside.steps[-1])
        if inside.predicts_ids and step.ids is not None:
            assert [int(choice.best()[0, step.number]) for choice in inside.id_choices] == step.ids
            assert 0 < step.id_probability <= 1 + 1e-6
    free = run_free(model, task, policy, sample)
    assert inside.right == bool(free.exact[0])
    expected = (int(free.first_error[0]), "token" if free.token_first[0] else "ID")
    assert inside.first_error == (None if expected[0] < 0 else expected)
    assert inside.true_answer == task.words(sample.tokens[0, start : int(sample.num_tokens[0])].tolist())


@pytest.mark.parametrize("name", ["pointer", "one level", "two levels"])
def test_a_pointer_points_at_the_id_that_is_written(name):
    kinds = set()
    for seed in range(6):
        _, _, inside = _look(name, seed)
        for step in inside.steps[:-1]:
            (pointed,) = (level.points_at for level in step.levels if level.points_at)  # other levels are classes
            if pointed.index is None:
                assert step.ids[0] == 0
            elif pointed.move == 0:
                assert pointed.index <= step.index
                assert step.ids[0] == int(inside.ids[0, pointed.index])
            kinds.add("reserved" if pointed.index is None else pointed.move)
            assert 0 < pointed.probability <= step.id_probability + 1e-6 or name != "one level"
        assert [level.points_at for level in inside.steps[-1].levels] == [None] * len(inside.levels)
    assert 0 in kinds
    assert all(level.points_at is None for level in _look("table")[2].steps[0].levels)


@pytest.mark.parametrize("push", [0.0, 50.0])
def test_a_pointer_across_levels_names_the_level_whose_id_is_copied(push):
    task, policy = PointerChasing(num_names=20), Predicted(max_id=40)
    config, unmoved, seen = replace(TINY, position_head=PointerConfig(across_levels=True)), 0, set()
    for seed in range(4):
        sample, model = draw(task, [5], seed=seed), _model(task, policy, config, seed)
        with torch.no_grad():
            for pointing in model.position_head.levels:
                pointing.special.bias[-1] += push  # the score of the other level
        inside = look_inside(model, task, policy, sample, Truth.of_sample(task, policy, sample))
        names = [level.name for level in inside.levels]
        for step in inside.steps[:-1]:
            for number, (choice, level) in enumerate(zip(inside.id_choices, step.levels, strict=True)):
                ids, logits = choice.ids.expand(choice.logits.shape)[0, step.number], choice.logits[0, step.number]
                pointed, copied = level.points_at, int(ids[logits.argmax()])
                if pointed.index is None:
                    assert copied == 0
                    continue
                assert pointed.level is None or (pointed.level != level.level and pointed.index == step.index)
                source = number if pointed.level is None else names.index(pointed.level)
                if pointed.move == 0:
                    unmoved += 1
                    assert copied == int(inside.ids[source, pointed.index])
                seen.add(pointed.level)
    assert unmoved > 0
    assert None in seen
    assert {"statement", "step"} <= seen or not push


def test_tokens_that_share_an_id():
    ids = torch.tensor([[1, 2, 2, 0, 2, 0], [1, 1, 2, 0, 1, 0]])
    both, first = torch.tensor([True, True]), torch.tensor([True, False])
    assert sharing(ids, 4, both) == [1]
    assert sharing(ids[:1], 4, torch.tensor([True])) == [1, 2]
    assert sharing(ids, 5, both) == []  # reserved: it stands nowhere
    assert sharing(torch.tensor([[1, 1], [0, 0]]), 1, first) == [0]


def test_tokens_that_share_an_id_at_one_level():
    ids = torch.tensor([1, 2, 2, 0, 2, 0])
    assert matching(ids, 4) == [1, 2]
    assert matching(ids, 0) == []
    assert matching(ids, 5) == []  # reserved: it stands nowhere


@pytest.mark.parametrize("name", GROWING)
def test_two_levels_that_grow_match_one_by_one(name, monkeypatch):
    monkeypatch.setattr("longreach.evaluation.look_inside.generate", generate_the_truth)
    totals = [0, 0]
    for seed in range(4):
        _, _, right = _look(name, seed)
        assert [level.name for level in right.levels if level.grows] == GROWING[name]
        for step in right.steps:
            for number, level in enumerate(step.levels):
                own = right.ids[number].tolist()
                naive = [j for j in range(step.index) if own[j] == own[step.index] != 0]
                assert level.matches == naive
                assert (level.read_id, level.level) == (own[step.index], right.levels[number].name)
                masses = [float(head[naive].sum()) for head in right.weights[:, :, step.number].flatten(0, 1)]
                assert [h.mass for h in level.heads] == pytest.approx(sorted(masses, reverse=True)[:3] if naive else [])
                for head in level.heads:
                    assert head.most == max(naive, key=lambda j: right.weights[head.layer, head.head, step.number, j])
            for number in (0, 1):
                totals[number] += len(step.levels[number].matches)
            # the statement and the mark that a step needs are those with its IDs
            matched = {place for level in step.levels[:2] for place in level.matches}
            if 0 < step.number < len(right.steps) - 1:
                assert {*step.depends_on} - {step.index} <= matched
        counts = {count.level: count for count in right.matches}
        for number, level in enumerate(right.levels):
            found = [step.levels[number].matches for step in right.steps]
            assert counts[level.name].tokens == sum(map(len, found))
            assert counts[level.name].steps == sum(places != [] for places in found)
            needed = [set(step.depends_on) & set(places) for step, places in zip(right.steps, found, strict=True)]
            assert counts[level.name].needed == sum(map(len, needed))
        assert counts[None].tokens == sum(len(step.shares_id_with) for step in right.steps) == 0
    assert min(totals) > 0


def test_heads_are_ranked_by_their_attention_on_tokens_of_the_same_id():
    _, _, inside = _look("rule")
    for step in inside.steps:
        (place,) = step.shares_id_with  # aligned: the token before step i shares its ID with bit i
        assert place == step.number
        weights = inside.weights[:, :, step.number, place]
        assert [head.mass for head in step.heads] == sorted(weights.flatten().tolist(), reverse=True)[:3]
        assert all(head.mass == float(weights[head.layer, head.head]) for head in step.heads)
    assert all(step.shares_id_with == [] and step.heads == [] for step in _look("count")[2].steps)


def test_details_of_a_step():
    _, _, inside = _look("one level")
    more = detail(inside, CASES["one level"][0], 0)
    step = inside.steps[0]
    assert more.tokens[0] == (step.writes, pytest.approx(step.token_probability))
    likeliest = dict(more.ids[0])
    assert likeliest[step.ids[0]] == pytest.approx(step.id_probability, rel=1e-4)
    assert list(likeliest.values()) == sorted(likeliest.values(), reverse=True)
    assert more.attended == sorted(more.attended)
    assert len(more.attended) == min(10, step.index + 1)
    assert more.weights[1][0][2] == float(inside.weights[1, 0, 0, more.attended[2]])
    for number in (-1, len(inside.steps)):
        with pytest.raises(BadInput, match=f"there is no step {number}"):
            detail(inside, CHAIN, number)


@pytest.mark.parametrize(("wrong", "right"), [("ID", True), ("token", False)])
def test_the_first_error_is_of_a_token_or_of_an_id(wrong, right):
    task, policy, _ = CASES["pointer"]
    model, sample, inside = _look("pointer", seed=3)
    own = [task.vocabulary.index(word) for word in inside.words]
    answer = own[inside.prompt_tokens :]
    ids = torch.nn.functional.pad(inside.ids, (0, 1))
    truth = look_inside(model, task, policy, sample, Truth(answer, ids))
    assert truth.first_error is None
    ids[0, inside.prompt_tokens + 1] += 1
    if wrong == "token":  # at the same step: the ID, chosen after the token, says nothing
        answer[1] = 3 if answer[1] != 3 else 4
    spoilt = look_inside(model, task, policy, sample, Truth(answer, ids))
    assert spoilt.first_error == (1, wrong)
    assert spoilt.right == (right and spoilt.stopped)
    told = verdict(replace(spoilt, stopped=True))
    assert told.startswith("right" if right else "wrong; the true answer is ")
    assert told.endswith("though the ID of step 1 is wrong" if right else "the first error is the token of step 1")


def test_a_typed_prompt_may_not_know_its_truth():
    task, policy, config = CASES["pointer"]
    sample = task.prompt_batch(task.parse("a b b c c . ? a"), 6)
    truth = Truth.of_prompt(task, policy, sample)
    assert task.words(truth.answer) == ["a", "b", "c", "."]
    assert truth.ids is None
    inside = look_inside(_model(task, policy, config), task, policy, sample, truth)
    assert not inside.knows_ids
    assert all(step.true_ids is None for step in inside.steps)
    circle = task.prompt_batch(task.parse("a b b a ? a"), 6)
    assert Truth.of_prompt(task, policy, circle).answer is None


def test_a_picture_has_a_panel_for_each_head_or_each_layer(monkeypatch):
    _, _, inside = _look("pointer", seed=1)  # whose steps share IDs with the prompt
    panels = [axis for axis in attention_figure.draw(inside).axes if axis.get_title()]
    assert [axis.get_title() for axis in panels] == ["head 0.0", "head 0.1", "head 1.0", "head 1.1"]
    growing, _ = inside.levels
    assert growing.grows
    assert len(panels[0].patches) == sum(len(step.levels[0].matches) for step in inside.steps) > 0
    monkeypatch.setattr(attention_figure, "_MOST_PANELS", 3)
    titles = [axis.get_title() for axis in attention_figure.draw(inside).axes if axis.get_title()]
    assert titles == ["layer 0: largest of 2 heads", "layer 1: largest of 2 heads"]
    monkeypatch.setattr(attention_figure, "MOST_DRAWN", 5)
    with pytest.raises(BadInput, match="too many for a picture"):
        attention_figure.draw(inside)


def test_a_picture_outlines_each_level_that_grows_in_its_colour(monkeypatch):
    monkeypatch.setattr("longreach.evaluation.look_inside.generate", generate_the_truth)
    _, _, inside = _look("two growing levels")
    figure = attention_figure.draw(inside)
    patches = next(axis for axis in figure.axes if axis.get_title()).patches
    colours = [patch.get_edgecolor() for patch in patches]
    expected = [sum(len(step.levels[number].matches) for step in inside.steps) for number in (0, 1)]
    assert min(expected) > 0
    assert sorted(map(colours.count, set(colours))) == sorted(expected)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["same statement", "same step"]
    assert not attention_figure.draw(_look("pointer")[2]).legends


def test_sequences_that_are_too_long_are_refused(monkeypatch):
    monkeypatch.setattr("longreach.evaluation.look_inside.MOST_TOKENS", 5)
    with pytest.raises(BadInput, match="too many to look inside"):
        _look("rule")
