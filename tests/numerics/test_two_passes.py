"""A first pass in half precision changes nothing that fp32 decides."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from catalogue import label
from helpers import TINY, draw
from learned import JOBS, PREDICTED, half_trained, repeating

from longreach.api import PointerConfig, Sequential, Tape, VariableAssignment, build_model
from longreach.engine.two_passes import CLEAR, JudgedBatch, Models, judge_open_rows, try_in_half
from longreach.evaluation import judge_in_one_pass
from longreach.evaluation.exact_match import Asked
from longreach.model import RESERVED

HALVES = [torch.float16, torch.bfloat16]
CHECKED = 3
"""Of 40 rows."""
COUNTED = ("exact", "right_tokens", "answer_tokens", "right_ids", "predicted_ids", "exact_with_ids")


def judge_twice(model, sample, ids, reserved=RESERVED, half=torch.float16):
    """Return the result of both passes, and the rows that half precision has settled."""
    batch = JudgedBatch(sample, ids, Asked.of(model, sample))
    tried = try_in_half(Models(model, model), batch, reserved, half)
    return judge_open_rows(model, batch, tried, reserved), tried.settled


def _assert_same(found, settled, plain, moved=CLEAR / 4):
    for name in COUNTED:
        assert torch.equal(getattr(found, name), getattr(plain, name)), name
    torch.testing.assert_close(found.margin[~settled], plain.margin[~settled], rtol=1e-4, atol=1e-5)
    assert (found.exact_with_ids & (found.margin > CLEAR))[settled].all()
    torch.testing.assert_close(found.margin[settled], plain.margin[settled], rtol=0, atol=moved)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("shift", [0, 7])
def test_two_passes_decide_as_fp32_does(job, half, shift):
    model, task, policy, sample = half_trained(job)
    ids = policy.evaluation_ids(task, sample) + shift
    plain = judge_in_one_pass(model, sample, ids, shift)
    found, settled = judge_twice(model, sample, ids, shift, half)
    _assert_same(found, settled, plain, moved=CLEAR / 4 if half == torch.float16 else CLEAR)
    assert 0.05 < plain.exact_with_ids.double().mean() < 0.95  # always or never right would prove nothing
    assert settled.double().mean() < 0.95
    if half == torch.float16:  # of bf16, with fewer bits, it may be that nothing is believed
        assert settled.double().mean() >= 0.05


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize(
    ("task", "policy", "head"),
    [
        (VariableAssignment(num_names=40), Sequential(), None),
        (Tape(), PREDICTED, PointerConfig()),
    ],
    ids=label,
)
def test_what_an_untrained_model_says_is_decided_by_fp32(task, policy, head, half):
    config = replace(TINY, position_head=head)
    model = build_model(config, len(task.vocabulary), 1, policy.level_sizes(task), policy.max_id).eval()
    sample = draw(task, [4, 9, 6, 12, 5])
    ids = policy.evaluation_ids(task, sample)
    found, settled = judge_twice(model, sample, ids, half=half)
    _assert_same(found, settled, judge_in_one_pass(model, sample, ids))
    assert not settled.any()


@pytest.fixture(name="repeating")
def _repeating():
    return repeating()


def test_a_model_that_is_sure_is_judged_in_half_precision_but_for_the_closest_rows(repeating):
    model, sample, ids = repeating
    (found, settled), plain = judge_twice(model, sample, ids), judge_in_one_pass(model, sample, ids)
    _assert_same(found, settled, plain)
    assert found.exact.all()
    assert settled.sum() == len(ids) - CHECKED
    assert not settled[plain.margin.argmin()]


def test_near_ties_are_left_to_fp32(repeating):
    model, sample, ids = repeating
    letters = sample.tokens[:, -1]
    twins = letters[:2].tolist()
    assert twins[0] != twins[1]
    kept = model.head.weight.detach().clone()
    with torch.no_grad():  # two letters that only the last bits tell apart
        model.head.weight[twins[0]] = kept[twins[1]] * (1 + 1e-6)
        try:
            (found, settled), plain = judge_twice(model, sample, ids), judge_in_one_pass(model, sample, ids)
        finally:
            model.head.weight.copy_(kept)
    _assert_same(found, settled, plain)
    tied = torch.isin(letters, torch.tensor(twins))
    assert (plain.margin[tied] < 1e-4).all()
    assert not settled[tied].any()
    assert settled.sum() == (~tied).sum() - CHECKED


@contextmanager
def _spoil(head, change):
    """Change what a head says, in half precision only."""

    def hook(module, inputs, said):
        return change(said) if torch.is_autocast_enabled("cpu") else said

    with head.register_forward_hook(hook):
        yield


def _wrong(scores):
    return scores.roll(1, -1)


def _wrong_in_some_rows(scores):
    scores = scores.clone()
    scores[::3] = scores[::3].roll(1, -1)
    return scores


def _not_a_number(scores):
    scores = scores.clone()
    scores[:, 3] = torch.nan
    return scores


def _infinite(scores):
    """Where the largest logit already was: the answer is right, but by an overflow."""
    return scores.scatter(-1, scores.argmax(-1, keepdim=True), torch.inf)


@pytest.mark.parametrize(
    ("change", "kept"),
    [(_wrong, 0), (_wrong_in_some_rows, 26 - CHECKED), (_not_a_number, 0), (_infinite, 0)],
    ids=["wrong", "wrong in some rows", "not a number", "infinite"],
)
def test_what_half_precision_spoils_is_judged_again(repeating, change, kept):
    model, sample, ids = repeating
    with _spoil(model.head, change):
        found, settled = judge_twice(model, sample, ids)
        with torch.autocast("cpu", torch.float16):
            spoilt = judge_in_one_pass(model, sample, ids)
    _assert_same(found, settled, judge_in_one_pass(model, sample, ids))
    assert found.exact.all()
    assert settled.sum() == kept
    assert not (spoilt.exact & spoilt.margin.isfinite()).all()  # had it been believed, the result were another


def test_ids_that_half_precision_spoils_are_judged_again():
    model, task, policy, sample = half_trained("predicted")
    ids = policy.evaluation_ids(task, sample)
    wrong = lambda choices: [replace(choice, ids=choice.ids + 1) for choice in choices]  # noqa: E731
    with _spoil(model.position_head, wrong):
        found, settled = judge_twice(model, sample, ids)
    plain = judge_in_one_pass(model, sample, ids)
    _assert_same(found, settled, plain)
    assert not settled.any()
    assert (plain.exact_with_ids & (plain.margin > CLEAR)).any()  # else it would not have been settled anyway


@pytest.mark.parametrize("strength", [40.0, 0.6], ids=["mends wrong answers", "moves margins"])
def test_a_first_pass_that_fp32_does_not_bear_out_is_not_believed(repeating, strength):
    """Half precision is spoilt in favour of the truth: a pass that trusted itself would call every row right."""
    model, sample, ids = repeating
    if strength > 1:  # answers that the model gets wrong
        wrong = sample.tokens.clone()
        wrong[:, 20:] = 1 + wrong[:, 20:] % 26
        sample = replace(sample, tokens=wrong)
    truth = sample.tokens[:, 10:, None]
    favour = lambda scores: scores.scatter_add(-1, truth, scores.new_full(truth.shape, strength))  # noqa: E731
    with _spoil(model.head, favour):
        found, settled = judge_twice(model, sample, ids)
        with torch.autocast("cpu", torch.float16):
            assert judge_in_one_pass(model, sample, ids).exact.all()
    plain = judge_in_one_pass(model, sample, ids)
    _assert_same(found, settled, plain)
    assert not settled.any()
    assert plain.exact.any() == (strength < 1)
