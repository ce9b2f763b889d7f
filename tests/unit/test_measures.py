"""Attention on the true dependencies and margins by length: against plain loops."""

import math
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from catalogue import ATTENTIONS, label
from helpers import TINY, draw, load_example

from longreach.api import (
    Addition,
    AlibiConfig,
    CopeConfig,
    Coupled,
    EvalConfig,
    LearnedRopeConfig,
    Lengths,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    Sequential,
    Span,
    TableConfig,
    VariableAssignment,
    build_model,
)
from longreach.errors import BadInput
from longreach.evaluation import attention_mass, judge, measuring
from longreach.evaluation.attention_mass import StepNeeds
from longreach.evaluation.evaluate import Cell, batches_of
from longreach.evaluation.look_inside import watch
from longreach.evaluation.margins import id_margins, token_margins
from longreach.evaluation.measures import LARGEST_MARGIN
from longreach.evaluation.measuring import choose_heads, measure_batch, measure_cell, measures_of_cell
from longreach.model import IdChoice
from longreach.objectives import id_choices

CHAIN = VariableAssignment(num_names=40, hops=Span(1, 3), echo=True, end="marked")
POINTER = replace(TINY, position_head=PointerConfig())
ACROSS = replace(TINY, position_head=PointerConfig(across_levels=True, kind_first=True))
TABLE = replace(TINY, position_head=TableConfig(), encoding=LearnedRopeConfig(max_id=40))
PREDICTING = {
    "pointer": (CHAIN, Predicted(max_id=40), POINTER),
    "table": (CHAIN, Predicted(max_id=40), TABLE),
    "several growing levels": (load_example("programs").PointerChasing(), Predicted(max_id=40), ACROSS),
}
ORIGIN = {"device": "cpu", "commit": "abc", "date": "2026-01-01"}
ALL = ("mass", "margin", "token_margin")


def make(task, policy, config, loud=12.0):
    """Fresh weights, so large that heads look at different tokens."""
    model = build_model(config, len(task.vocabulary), 0, policy.level_sizes(task), policy.max_id).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(loud)
    return model


def plain_mass(model, task, sample, ids):
    """Loop over samples and steps: (layer, head, step) masses of each sample, and the dependencies of its steps."""
    found = []
    for row in range(len(sample.tokens)):
        size = int(sample.num_tokens[row])
        one = sample.rows(row, row + 1)
        needs = task.depends_on(one)[0]
        _, weights = watch(model, one.tokens[:, : size - 1], ids[row : row + 1, :, : size - 1], first=0)
        steps = []
        for place in range(size - 1):
            if not sample.answer[row, place + 1] or sample.given[row, place + 1]:
                continue
            on = [other for other in needs[place + 1].nonzero()[:, 0].tolist() if other < place]
            if on:
                steps.append((weights[:, :, place, on], len(on) / (place + 1)))
        found.append(steps)
    return found


MASS_CASES = [
    *[(ParityScratchpad(), Coupled(max_id=40), replace(TINY, attention=attention)) for attention in ATTENTIONS],
    *[
        (ParityScratchpad(), Coupled(max_id=40), replace(TINY, encoding=encoding))
        for encoding in (AlibiConfig(), CopeConfig())
    ],
    (Addition(), Coupled(max_id=40), replace(TINY, loops=2)),
    *PREDICTING.values(),
]


@pytest.mark.parametrize("case", MASS_CASES, ids=lambda case: f"{type(case[0]).__name__}-{label(case[2])}"[:60])
def test_mass_is_what_a_loop_over_samples_and_steps_finds(case):
    task, policy, _ = case
    model, sample = make(*case), draw(task, [6, 4, 5])
    ids = policy.evaluation_ids(task, sample)
    mass = measure_batch(model, task, policy, sample, ids, ("mass",)).mass
    for row, steps in enumerate(plain_mass(model, task, sample, ids)):
        sums = torch.stack([weights.sum(-1) for weights, _ in steps])
        torch.testing.assert_close(mass.mean[row, ..., 0], sums.double().mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mass.lowest[row, ..., 0], sums.double().amin(0), rtol=1e-4, atol=1e-5)
        assert int(mass.steps[row, 0]) == len(steps)
        assert float(mass.even[row, 0]) == pytest.approx(sum(even for _, even in steps) / len(steps))
        for number in range(attention_mass.DEPENDENCIES):
            each = [w[..., number] for w, _ in steps if number < w.shape[-1] <= attention_mass.DEPENDENCIES]
            assert int(mass.steps[row, number + 1]) == len(each)
            if each:
                of_each = torch.stack(each).double().mean(0)
                torch.testing.assert_close(mass.mean[row, ..., number + 1], of_each, rtol=1e-4, atol=1e-5)


def test_uniform_attention_has_the_mass_of_even_attention():
    task, policy = ParityScratchpad(), Sequential()
    model, sample = build_model(TINY, len(task.vocabulary), 0), draw(task, [3, 7])
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight.zero_()
            block.attention.qkv.bias.zero_()
    mass = measure_batch(model, task, policy, sample, policy.evaluation_ids(task, sample), ("mass",)).mass
    torch.testing.assert_close(mass.mean, mass.even[:, None, None].expand_as(mass.mean), rtol=1e-5, atol=1e-7)
    # 3 bits, "b b b ; =": the steps start from places 4 to 7, and each needs one token elsewhere: a bit, or the sign
    assert float(mass.even[0, 0]) == pytest.approx((1 / 5 + 1 / 6 + 1 / 7 + 1 / 8) / 4)


def test_the_token_that_a_step_starts_from_is_no_dependency():
    task, sample = ParityScratchpad(), draw(ParityScratchpad(), [5, 2])
    assert task.depends_on(sample)[0].diagonal(-1).any()  # the partial result before
    needs = StepNeeds.of(task, sample)
    rows = torch.arange(needs.rows.start, needs.rows.stop)
    assert not needs.needed[:, torch.arange(len(rows)), rows].any()
    assert needs.needed.any()


def small_cell(case, length=6, samples=7, **settings):
    task, policy, _ = case
    config = EvalConfig(lengths=Lengths((length,)), samples=samples, free_samples=0, **settings)
    return make(*case), policy, Cell(task, length, {}), config


@pytest.mark.parametrize("case", [*PREDICTING.values(), MASS_CASES[0]], ids=lambda case: label(case[2])[:40])
def test_measuring_in_blocks_changes_nothing(case, monkeypatch):
    model, policy, cell, config = small_cell(case)
    names = ALL if model.position_head is not None else ("mass", "token_margin")

    def entries(batch_tokens):
        found = measure_cell(model, policy, cell, config, names, "cpu", batch_tokens)
        return measures_of_cell(found, cell, config, [], ORIGIN)

    whole = entries(1 << 16)
    tokens = cell.task.max_tokens(cell.length)
    monkeypatch.setattr(attention_mass, "WEIGHTS", 3 * tokens)
    monkeypatch.setattr(measuring, "PAIRS", 2 * tokens**2)
    monkeypatch.setattr("longreach.evaluation.exact_match._PAIRS", 1)
    assert [size for _, size in batches_of(cell, config, 2 * tokens)] == [2, 2, 2, 1]
    for blocks in (entries(1 << 16), entries(tokens)):
        assert [entry.key for entry in blocks] == [entry.key for entry in whole]
        for one, other in zip(blocks, whole, strict=True):
            assert (one.samples, one.steps) == (other.samples, other.steps)
            for value in ("mean", "deviation", "lowest"):
                assert getattr(one, value) == pytest.approx(getattr(other, value), rel=1e-4, abs=1e-5)


def choice_of(*pairs):
    """One step: IDs with their probabilities."""
    ids, probabilities = zip(*pairs, strict=True)
    return IdChoice(torch.tensor([[ids]]), torch.tensor([[probabilities]]).log())


@pytest.mark.parametrize("target", [5, 7])
def test_a_margin_adds_up_the_candidates_of_an_id(target):
    choice = choice_of((5, 0.3), (7, 0.4), (5, 0.3))  # the likeliest candidate stands for 7, the likeliest ID is 5
    expected = math.log(0.6 / 0.4) * (1 if target == 5 else -1)
    assert float(id_margins(choice, torch.tensor([[target]]))) == pytest.approx(expected, rel=1e-5)
    shifted = IdChoice(choice.ids + 1000, choice.logits + 3.5)
    assert float(id_margins(shifted, torch.tensor([[target + 1000]]))) == pytest.approx(expected, rel=1e-5)
    turned = IdChoice(choice.ids.flip(-1), choice.logits.flip(-1))
    assert float(id_margins(turned, torch.tensor([[target]]))) == pytest.approx(expected, rel=1e-5)


def test_a_margin_out_of_reach_or_without_a_rival_is_clipped():
    choice = choice_of((5, 0.5), (7, 0.5))
    assert float(id_margins(choice, torch.tensor([[6]]))) == -LARGEST_MARGIN
    assert float(id_margins(choice_of((5, 0.5), (5, 0.5)), torch.tensor([[5]]))) == LARGEST_MARGIN
    unseen = IdChoice(choice.ids, torch.tensor([[[0.0, -torch.inf]]]))
    assert float(id_margins(unseen, torch.tensor([[7]]))) == -LARGEST_MARGIN
    zero = choice_of((3, 0.2), (0, 0.8))  # rows with fewer IDs are padded with zeros
    both = IdChoice(torch.cat([zero.ids, torch.tensor([[[4, 4]]])]), torch.cat([zero.logits, zero.logits]))
    margins = id_margins(both, torch.tensor([[0], [4]]))
    assert margins.flatten().tolist() == pytest.approx([math.log(4), LARGEST_MARGIN])


@pytest.mark.parametrize("name", PREDICTING)
def test_margins_are_what_a_loop_over_candidates_finds(name):
    task, policy, config = PREDICTING[name]
    model, sample = make(task, policy, config, loud=4.0), draw(task, [6, 4, 5])
    ids = policy.evaluation_ids(task, sample)
    found = measure_batch(model, task, policy, sample, ids, ("margin",)).margins
    assert len(found) == ids.shape[1]
    with torch.no_grad():
        hidden = model(sample.tokens[:, :-1], ids[:, :, :-1])
        every = torch.arange(hidden.shape[1]).expand(hidden.shape[:2])
        past = model.past(hidden, sample.tokens[:, :-1])
        choices = id_choices(model, sample, ids, hidden, every, past)
    compared = 0
    for level, (choice, (batch,)) in enumerate(zip(choices, found.values(), strict=True)):
        for row in range(len(sample.tokens)):
            expected = []
            for place in range(int(sample.num_tokens[row]) - 2):  # the last token is never read
                if not sample.answer[row, place + 1]:
                    continue
                summed = defaultdict(float)
                probabilities = choice.logits[row, place].double().softmax(-1).tolist()
                for one, share in zip(
                    choice.ids.expand(choice.logits.shape)[row, place].tolist(), probabilities, strict=True
                ):
                    summed[one] += share
                right = summed.pop(int(ids[row, level, place + 1]), 0.0)
                other = max(summed.values())
                margin = math.log(right / other) if right and other else math.copysign(LARGEST_MARGIN, right - other)
                expected.append(min(max(margin, -LARGEST_MARGIN), LARGEST_MARGIN))
            assert batch[row][~batch[row].isnan()].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)
            compared += len(expected)
    assert compared >= 16


def test_token_margins_say_which_answers_are_right():
    task, policy = ParityScratchpad(), Coupled(max_id=40)
    model, sample = make(task, policy, TINY), draw(task, [1, 2, 1, 3, 1, 2, 4, 1])
    ids = policy.evaluation_ids(task, sample)
    ((margins,),) = measure_batch(model, task, policy, sample, ids, ("token_margin",)).margins.values()
    judged = judge(model, sample, ids)
    right = ((margins > 0) & ~margins.isnan()).sum(1)
    assert right.tolist() == judged.right_tokens.tolist()
    assert 0 < int(right.sum()) < int(judged.answer_tokens.sum())
    assert float(token_margins(torch.tensor([[[1.0, 3.5, 2.0]]]), torch.tensor([[1]]))) == 1.5


def test_overflow_is_refused():
    task, policy, config = PREDICTING["pointer"]
    model = make(task, policy, config)
    with torch.no_grad():
        model.embed.weight.fill_(torch.nan)
    for name in ALL:
        with pytest.raises(BadInput, match="the scores of the model overflow"):
            measure_cell(model, policy, Cell(task, 4, {}), EvalConfig(samples=1, free_samples=0), (name,), "cpu", 64)


def test_the_head_is_chosen_at_the_longest_training_length_on_samples_of_its_own():
    case = (Addition(), Coupled(max_id=40), TINY)
    task, policy, _ = case
    model = make(*case)
    chosen = choose_heads(model, task, policy, 0, 5, "cpu", 1 << 16)
    assert [head.dependency for head in chosen][:2] == [None, 1]
    config = EvalConfig(lengths=Lengths((5,)), samples=measuring.CHOICE_SAMPLES, free_samples=0, seed=1)
    mass = measure_cell(model, policy, Cell(task, 5, {}), config, ("mass",), "cpu", 1 << 16).mass
    for head in chosen:
        kind = head.dependency or 0
        means = mass.mean[mass.steps[:, kind] > 0][..., kind].mean(0)
        assert float(means.max()) == pytest.approx(head.mean)
        assert float(means[head.layer, head.head]) == pytest.approx(head.mean)
        assert (head.length, head.seed) == (5, 1)
