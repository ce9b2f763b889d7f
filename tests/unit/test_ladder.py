"""Moving among the IDs of a prompt, against a naive reference."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from longreach.positions.ladder import Ladder


def _naive(present, start, steps):
    """One rung at a time."""
    rungs = sorted(present)
    for _ in range(abs(steps)):
        if steps > 0:
            above = [rung for rung in rungs if rung > start]
            start = above[0] if above else start + 1
        else:
            below = [rung for rung in rungs if rung < start]
            beyond = start > rungs[-1] + 1
            start = start - 1 if beyond else below[-1] if below else rungs[0]
    return start


@given(
    ids=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    steps=st.integers(-3, 3),
    beyond=st.integers(1, 4),
)
def test_moves_agree_with_counting_rungs(ids, steps, beyond):
    starts = [*sorted(set(ids)), max(ids) + beyond]
    row = torch.tensor([ids])
    ladder = Ladder.of(row, torch.ones_like(row, dtype=torch.bool))
    moved = ladder.move(torch.tensor([starts]), steps)[0].tolist()
    assert moved == [_naive(set(ids), start, steps) for start in starts]


def test_rows_have_their_own_rungs_and_some_tokens_do_not_count():
    ids = torch.tensor([[5, 9, 2, 9, 7], [1, 1, 1, 4, 4]])
    counts = torch.tensor([[True, True, True, True, False], [True, True, True, False, False]])
    ladder = Ladder.of(ids, counts)
    assert ladder.count[:, 0].tolist() == [3, 1]
    assert ladder.move(torch.tensor([[2, 5, 9], [1, 2, 3]]), 1).tolist() == [[5, 9, 10], [2, 3, 4]]
    assert ladder.has(torch.tensor([[7, 9, 0], [1, 4, 0]])).tolist() == [[False, True, False], [True, False, False]]


def test_shifting_all_ids_shifts_every_move():
    ids = torch.tensor([[3, 8, 8, 1, 20]])
    everything = torch.ones_like(ids, dtype=torch.bool)
    for steps in (-2, -1, 1, 2):
        plain = Ladder.of(ids, everything).move(ids, steps)
        shifted = Ladder.of(ids + 3_000_000, everything).move(ids + 3_000_000, steps)
        assert torch.equal(shifted, plain + 3_000_000)


def test_between_two_rungs_a_step_leads_to_the_next_one():
    ids = torch.tensor([[2, 6, 10]])
    ladder = Ladder.of(ids, torch.ones_like(ids, dtype=torch.bool))
    assert ladder.move(torch.tensor([[4]]), 1).item() == 6
    assert ladder.move(torch.tensor([[4]]), -1).item() == 2
