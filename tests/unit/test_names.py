"""Names drawn without repetition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longreach.seeding import stream
from longreach.tasks.names import distinct, distinct_besides, letters, renew


@given(among=st.integers(2, 3000), share=st.floats(0.01, 1.0), seed=st.integers(0, 99))
def test_names_are_distinct_and_in_range(among, share, seed):
    count = max(1, int(among * share))
    names = distinct(stream(seed, "names", torch.arange(4)), "x", among, count)
    assert names.shape == (4, count)
    assert names.min() >= 0
    assert names.max() < among
    assert all(len(set(row)) == count for row in names.tolist())


@pytest.mark.parametrize("among", [100, 600, 677, 100_000])
def test_fewer_names_are_the_first_of_more(among):
    draws = stream(1, "names", torch.arange(3))
    assert torch.equal(distinct(draws, "x", among, 80)[:, :30], distinct(draws, "x", among, 30))


@pytest.mark.parametrize("among", [500, 601, 1000])
def test_names_are_uniform_alone_and_in_pairs(among):
    names = distinct(stream(2, "names", torch.arange(40_000)), "x", among, 3)
    expected = 40_000 / among
    for column in range(3):
        counts = torch.bincount(names[:, column], minlength=among).double()
        statistic = float(((counts - expected) ** 2 / expected).sum())
        assert abs(statistic - (among - 1)) < 5 * (2 * (among - 1)) ** 0.5  # five standard deviations
    gaps = torch.bincount((names[:, 1] - names[:, 0]) % among, minlength=among)[1:].double()
    expected = 40_000 / (among - 1)
    assert abs(float(((gaps - expected) ** 2 / expected).sum()) - (among - 2)) < 5 * (2 * among) ** 0.5


@given(among=st.integers(20, 1500), seed=st.integers(0, 99))
def test_taken_names_are_left_out(among, seed):
    draws = stream(seed, "names", torch.arange(5))
    taken = distinct(draws, "taken", among, 8)
    is_taken = draws.below("which", 2, 8) == 1
    fresh = distinct_besides(draws, "x", among, 10, taken, is_taken)
    for row in range(5):
        found, left_out = set(fresh[row].tolist()), set(taken[row][is_taken[row]].tolist())
        assert len(found) == 10
        assert not found & left_out


def test_renewing_keeps_what_it_must_and_nothing_comes_twice():
    draws = stream(0, "names", torch.arange(50))
    for among in (12, 900):
        names = distinct(draws, "first", among, 12)
        keep = draws.below("keep", 2, 12) == 1
        again = renew(names, keep, among, draws, "again")
        assert torch.equal(again[keep], names[keep])
        assert all(len(set(row)) == 12 for row in again.tolist())
    assert (again != names)[~keep].double().mean() > 0.98  # of 900 names few come again


def test_names_are_spelled_in_letters():
    assert [letters(number) for number in (0, 25, 26, 27, 701, 702)] == ["a", "z", "aa", "ab", "zz", "aaa"]
