"""Chain heads, fitted heads, rollouts and counterexamples."""

import math

import pytest
import torch

from longreach.seeding import stream
from longreach.theory import (
    ChainHead,
    Dfa,
    GapTypes,
    IdHead,
    OracleHead,
    SparseHead,
    err_exact,
    err_mc,
    fit_head,
    indistinguishable,
    ppc_rollout,
    rollout_bound,
    schedule_bound,
    schedule_hit,
    swamped,
    teacher_forced,
    walk,
)
from longreach.theory.instances import margin_head, parity_task
from longreach.theory.reproduce import misled_head, tape_walks

FOLLOWS = IdHead(torch.tensor([[1.0, 0, 0], [0, 0, 1]], dtype=torch.float64))


def table(name, *shape):
    return stream(0, name, torch.arange(1)).uniform(name, torch.Size(shape).numel()).view(shape)


def some_dfa(states, vocab_size, classes):
    step = stream(0, "dfa", torch.arange(1)).below("step", states, states * vocab_size).view(states, vocab_size)
    return Dfa(step, table("output", states, classes).softmax(1))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("gaps", [None, 1, 3])
@pytest.mark.parametrize("slack", [None, 0, 2])
def test_chains_are_summed_as_they_are_listed(k, gaps, slack):
    v = None if gaps is None else table("v", k - 1, gaps)
    head = ChainHead(table("u", k, 3), v, some_dfa(4, 3, 3), None if slack is None else k - 1 + slack)
    tokens = stream(1, "x", torch.arange(5)).below("x", 3, 9)
    listed = head.listed(9)
    assert torch.allclose(head.forward(tokens), listed.forward(tokens), atol=1e-13, rtol=0)
    assert torch.allclose(head.mass(tokens).sum(1), listed.mass(tokens).sum(1), rtol=1e-13, atol=0)


def test_chains_count_subsets():
    """With all weights 1 the mass is the number of sets: C(400, 8) of them, and fewer within a span."""
    one = Dfa(torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 1, dtype=torch.float64))
    u, tokens = torch.ones(8, 2, dtype=torch.float64), torch.zeros(1, 400, dtype=torch.long)
    assert float(ChainHead(u, None, one).mass(tokens)) == pytest.approx(math.comb(400, 8), rel=1e-12)
    within = sum(math.comb(reach - 1, 6) * (400 - reach) for reach in range(7, 13))
    assert float(ChainHead(u, None, one, 12).mass(tokens)) == within


def test_blocks_of_rows_do_not_matter(monkeypatch):
    head = ChainHead(table("u", 3, 2), table("v", 2, 4), some_dfa(2, 2, 2), 5)
    tokens = stream(1, "x", torch.arange(7)).below("x", 2, 20)
    whole = head.forward(tokens)
    monkeypatch.setattr("longreach.theory.chain._AT_ONCE", 1)
    assert torch.allclose(head.forward(tokens), whole, atol=1e-14, rtol=0)


def test_chains_take_part_in_errors():
    parity = Dfa(torch.tensor([[0, 1, 0], [1, 0, 1]]), torch.eye(2, dtype=torch.float64))
    u = torch.tensor([[0.0, 1, 1]], dtype=torch.float64).repeat(2, 1)
    head = ChainHead(u, None, parity, 3)
    assert err_exact(head, parity_task(2, 3), 7) == 0
    look_alikes = parity_task(2, 3, rho=0.1)
    assert err_exact(head, look_alikes, 7) == pytest.approx(err_exact(head.listed(7), look_alikes, 7), rel=1e-12)


def test_fitting_finds_the_marked_tokens():
    task, types = parity_task(2, 3), GapTypes(2, 3)
    fitted = fit_head(task, types, range(5, 13), steps=250, batch=64, rate=0.3)
    assert fitted.losses[0] > 0.5
    assert err_mc(fitted.head, task, 12, 500).mean < 0.005
    assert err_mc(fitted.head, task, 100, 500).mean < 0.05
    twice = [fit_head(task, types, range(5, 13), steps=5, batch=64).head.a for _ in range(2)]
    assert torch.equal(*twice)


@pytest.mark.parametrize("p", [2, 3])
def test_errors_on_indistinguishable_tasks_add_up(p):
    far, near = indistinguishable(p, 3)
    for length in (2, 3):
        assert torch.equal(far.q_pos.support(length)[0], near.q_pos.support(length)[0])
    for head in (OracleHead(far), OracleHead(near)):
        assert err_exact(head, far, 3) == 0
        both = err_exact(head, far, 6) + err_exact(head, near, 6)
        assert both == pytest.approx(1 - 1 / p, rel=1e-12)
    alike = SparseHead(GapTypes(2, 1), torch.ones(1, p * p, dtype=torch.float64), table("g", p * p, p).softmax(1))
    assert err_exact(alike, far, 6) + err_exact(alike, near, 6) > 1 - 1 / p


def test_errors_on_indistinguishable_tasks_add_up_in_samples():
    far, near = indistinguishable(5, 10)
    first, second = (err_mc(OracleHead(far), task, 20, 20_000) for task in (far, near))
    assert first.mean == 0
    assert second.mean == pytest.approx(1 - 1 / 5, abs=4 * second.se)


def test_a_class_without_locality_can_be_swamped():
    head, task = margin_head(GapTypes(2, 2), math.inf), parity_task(2, 2)
    for extra in (0.0, 1.0, 100.0):
        assert err_exact(swamped(head, 8, extra, 7), task, 8) == 0  # all that training shows
    errors = [err_exact(swamped(head, 8, extra, 8), task, 9) for extra in (0.0, 1.0, 100.0)]
    assert errors[0] == 0
    assert errors[1] == pytest.approx(0.25)  # one set of full span, undecided, beside the planted one
    assert errors[2] == pytest.approx(0.5, abs=0.01)


def test_right_heads_roll_out_without_error():
    path = tape_walks(200, 12, 40)
    assert int(path.ids.min()) >= 0
    assert int(path.ids.max()) < 12
    assert (path.ids.diff(dim=1).abs() == 1).all()
    head = misled_head()
    head.a[:, :, 4] = head.a[:, :, 3]
    assert max(teacher_forced(head, FOLLOWS, path)) == 0
    rollout = ppc_rollout(head, FOLLOWS, path)
    assert rollout.right.all()
    assert torch.equal(rollout.ids, path.ids[:, 1:])
    assert torch.equal(rollout.symbols, path.symbols)


def test_a_wrong_id_head_loses_its_place():
    path = tape_walks(500, 30, 10)
    stays = IdHead(torch.tensor([[0.0, 1, 0], [0, 0, 1]], dtype=torch.float64))
    assert teacher_forced(misled_head(), stays, path)[1] == pytest.approx(0.5, abs=0.05)
    assert float(ppc_rollout(misled_head(), stays, path).right.double().mean()) < 0.3


@pytest.mark.parametrize("steps", [2, 10, 30])
def test_rollouts_are_as_good_as_theorem_3_says(steps):
    path = tape_walks(4000, 40, steps)
    error = max(teacher_forced(misled_head(), FOLLOWS, path))
    bound = rollout_bound(steps, error)
    wrong = 1 - float(ppc_rollout(misled_head(), FOLLOWS, path).right.double().mean())
    assert 0 < wrong <= bound.value
    assert not bound.vacuous


def test_no_schedule_follows_the_head():
    for w in (0, 1, 4):
        hits = [schedule_hit(steps, w) for steps in (1, 2, 7, 50, 1000)]
        assert hits[-1] < 0.15
        for steps, hit in zip((1, 2, 7, 50, 1000), hits, strict=True):
            assert hit <= schedule_bound(steps, w)
    draws = stream(0, "walk", torch.arange(20_000))
    path = walk(torch.zeros(20_000, 101, dtype=torch.long), torch.full((20_000,), 50), 20, draws)
    away = path.ids[:, -1] - 50
    best = max(float(((away - guess).abs() <= 3).double().mean()) for guess in range(-5, 6))
    assert best == pytest.approx(schedule_hit(20, 3), abs=0.015)
