"""Random numbers are functions of their address."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from longreach.seeding import generator, stream


@given(st.integers(0, 2**40), st.integers(1, 20), st.integers(1, 20))
def test_a_column_does_not_depend_on_width_or_batch(seed, columns, more):
    whole = stream(seed, "x", torch.arange(8)).bits("p", columns + more)
    part = stream(seed, "x", torch.arange(3, 8)).bits("p", columns)
    assert torch.equal(whole[3:, :columns], part)


def test_known_numbers():
    # SplitMix64 with state 0 gives e220a8397b1dcdaf as its first number (Steele et al., reference code)
    from longreach.seeding import _GOLDEN, _mix_, _signed

    first = _mix_(torch.tensor([_signed(_GOLDEN)])).item() % 2**64
    assert first == 0xE220A8397B1DCDAF


def test_streams_and_purposes_are_independent():
    samples = torch.arange(20_000)
    bits = [
        stream(0, "a", samples).below("p", 2, 1),
        stream(0, "b", samples).below("p", 2, 1),
        stream(1, "a", samples).below("p", 2, 1),
        stream(0, "a", samples).below("q", 2, 1),
        stream(0, "a", samples).child("c").below("p", 2, 1),
    ]
    for i, one in enumerate(bits):
        assert abs(one.double().mean() - 0.5) < 0.02
        for other in bits[:i]:
            assert abs((one == other).double().mean() - 0.5) < 0.02


def test_below_is_uniform_and_in_range():
    counts = torch.bincount(stream(3, "u", torch.arange(1000)).below("p", 7, 70).flatten(), minlength=7)
    expected = counts.sum() / 7
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert len(counts) == 7
    assert chi_squared < 30  # 6 degrees of freedom: p = 4e-5


def test_below_takes_a_bound_per_sample():
    high = torch.tensor([[1], [5], [2**30]])
    drawn = stream(0, "h", torch.arange(3)).below("p", high, 200)
    assert (drawn >= 0).all()
    assert (drawn < high).all()


def test_uniform_is_below_one():
    drawn = stream(0, "u", torch.arange(1000)).uniform("p", 10)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    stream(0, "x", torch.arange(4)).uniform("p", 4)
    torch.randn(3, generator=generator(0, "x"))
    assert torch.equal(before, torch.random.get_rng_state())


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=4))
def test_each_sample_may_have_its_own_seed(seeds):
    samples = torch.arange(6)
    together = stream(torch.tensor(seeds).repeat_interleave(6), "x", samples.repeat(len(seeds)))
    alone = [stream(seed, "x", samples).key for seed in seeds]
    assert torch.equal(together.key, torch.cat(alone))
