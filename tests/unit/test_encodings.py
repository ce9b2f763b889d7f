"""How IDs enter: angles, tables, waves."""

import itertools

import pytest
import torch
from catalogue import ATTENTIONS, ENCODINGS, label
from hypothesis import given
from hypothesis import strategies as st

from longreach.api import (
    CopeConfig,
    EqualIdsConfig,
    LearnedConfig,
    NoEncodingConfig,
    RopeConfig,
    SinusoidalConfig,
    TransformerConfig,
    build_model,
)
from longreach.config.registry import entries
from longreach.errors import BadInput
from longreach.positions.encodings import Shape, rotate


def _model(encoding, levels=1, heads=2):
    return build_model(
        TransformerConfig(layers=2, width=32, heads=heads, encoding=encoding), 11, 0, level_sizes=(0,) * levels
    ).eval()


def test_the_catalogue_has_every_registered_encoding_and_attention():
    assert {type(encoding) for encoding in ENCODINGS} == set(entries("encoding").values())
    assert {type(attention) for attention in ATTENTIONS} == set(entries("attention").values())


@given(shift=st.integers(1, 5_000_000), seed=st.integers(0, 100))
def test_with_rope_shifting_all_ids_changes_nothing_not_even_a_bit(shift, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 11, (2, 9), generator=generator)
    ids = torch.randint(0, 1000, (2, 1, 9), generator=generator)
    model = _model(RopeConfig())
    assert torch.equal(model(tokens, ids), model(tokens, ids + shift))


def test_rope_depends_on_differences_of_ids_only():
    """A score is the same wherever the pair stands, also at IDs in the millions."""
    rope = RopeConfig().build(Shape(16, 1, (0,), 0))
    q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def score(q_id, k_id):
        turn = lambda x, i: rotate(x, rope.rotation(torch.tensor([[[i]]]), torch.zeros(1, 1, 1, dtype=torch.long)))  # noqa: E731
        return (turn(q, q_id) * turn(k, k_id)).sum()

    for base in (7, 10_000, 3_000_000):
        torch.testing.assert_close(score(base + 5, base), score(5, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=label)
@pytest.mark.parametrize("levels", [1, 2])
def test_every_level_enters(encoding, levels):
    model = _model(encoding, levels)
    with torch.no_grad():  # some begin without a bias
        for parameter in model.encoding.parameters():
            parameter.add_(torch.linspace(0.1, 0.5, parameter.numel()).view(parameter.shape))
    tokens = torch.arange(8)[None] % 5
    ids = torch.arange(8).expand(1, levels, 8).clone()
    before = model(tokens, ids)
    for level in range(levels):
        other = ids.clone()
        other[:, level, 3:] += 7
        assert torch.equal(model(tokens, other), before) == isinstance(
            encoding, NoEncodingConfig | CopeConfig | EqualIdsConfig
        )


@given(seed=st.integers(0, 1000), levels=st.integers(1, 3))
def test_heads_that_compare_ids_see_equal_ones_at_their_level_and_the_others_see_all(seed, levels):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 4, (2, levels, 7), generator=generator)
    encoding = EqualIdsConfig(heads=levels + 1).build(Shape(32, 8, (0,) * levels, 0))
    seen = encoding.bias(ids, ids) == 0
    pairs = encoding.pair_bias(ids, ids)
    for row, head, query, key in itertools.product(range(2), range(8), range(7), range(7)):
        mine, other = ids[row, head % levels, query], ids[row, head % levels, key]
        wanted = head > levels or (key == 0 if mine == 0 else bool(mine == other))
        assert bool(seen[row, head, query, key]) == wanted
        assert (pairs(*map(torch.tensor, (row, head, query, key))) == 0) == wanted


@given(seed=st.integers(0, 100))
def test_only_equality_of_ids_matters_to_heads_that_compare_them(seed):
    generator = torch.Generator().manual_seed(seed)
    model = _model(EqualIdsConfig(), levels=2)
    tokens = torch.randint(0, 11, (2, 9), generator=generator)
    ids = torch.randint(0, 5, (2, 2, 9), generator=generator)
    renamed = torch.tensor([0, *(5 + torch.randperm(1_000_000, generator=generator)[:4]).tolist()])  # 0 stays reserved
    assert torch.equal(model(tokens, ids), model(tokens, renamed[ids]))
    other = ids.clone()
    other[:, 1, 5:] = 17 + torch.arange(4)
    assert not torch.equal(model(tokens, ids), model(tokens, other))


def test_ids_of_a_bounded_level_are_classes():
    config = TransformerConfig(layers=2, width=32, heads=2, encoding=EqualIdsConfig())
    model = build_model(config, 11, 0, level_sizes=(0, 3)).eval()
    tokens, ids = torch.arange(8)[None] % 5, torch.tensor([[[1, 2, 3, 4, 1, 2, 3, 4], [1, 1, 1, 1, 2, 2, 2, 2]]])
    other = ids.clone()
    other[:, 1] += 1  # the same are equal, but the classes are others
    assert not torch.equal(model(tokens, ids), model(tokens, other))
    assert model.encoding.reaches_embeddings
    assert not _model(EqualIdsConfig()).encoding.reaches_embeddings
    with pytest.raises(BadInput, match="cannot be shifted"):
        model.check_shift(1)
    model.check_shift(0)
    with pytest.raises(BadInput, match="needs a level of IDs that grows"):
        build_model(config, 11, 0, level_sizes=(3,))


def test_heads_that_compare_ids_are_as_many_as_levels_or_more():
    with pytest.raises(BadInput, match=r"equal_ids.heads=1 must be in 2..2"):
        _model(EqualIdsConfig(heads=1), levels=2)
    with pytest.raises(BadInput, match=r"equal_ids.heads=3 must be in 3..2"):
        _model(EqualIdsConfig(), levels=3)
    with pytest.raises(ValueError, match="must not be negative"):
        EqualIdsConfig(heads=-1)


def test_rope_turns_each_level_with_its_own_frequencies():
    rope = RopeConfig().build(Shape(8, 1, (0, 0), 0))
    origin = torch.zeros(1, 2, 1, dtype=torch.long)
    first = rope.rotation(torch.tensor([[[3], [0]]]), origin)[1]
    second = rope.rotation(torch.tensor([[[0], [3]]]), origin)[1]
    assert torch.equal(first[..., 0:2], second[..., 2:4])
    assert (first[..., 2:4] == 0).all()
    torch.testing.assert_close(first[0, 0, 0, :2], torch.tensor([3.0, 3.0 / 100]).sin())


@pytest.mark.parametrize(
    ("head_dim", "level_sizes", "pairs"),
    [
        (32, (0, 0, 5, 0), [4, 4, 4, 4]),
        (64, (0, 0, 5, 0), [9, 9, 5, 9]),
        (32, (0, 3), [14, 2]),
        (16, (0, 2, 0), [3, 2, 3]),
        (16, (0, 2, 3, 0, 0), [2, 1, 1, 2, 2]),
    ],
)
def test_rope_gives_growing_levels_equal_shares_and_a_bounded_one_the_rest(head_dim, level_sizes, pairs):
    assert RopeConfig().build(Shape(head_dim, 1, level_sizes, 0)).pairs == pairs


def test_sinusoids_are_those_of_the_formula():
    waves = SinusoidalConfig(scale=1.0).build(Shape(4, 1, (0,), 0)).embed(torch.tensor([[[7]]]))
    angles = torch.tensor([7.0, 0.07])
    torch.testing.assert_close(waves[0, 0], torch.cat([angles.sin(), angles.cos()]))


def test_a_learned_table_ends_somewhere_and_says_so():
    model = _model(LearnedConfig(max_id=50))
    with pytest.raises(BadInput, match="position ID 51 is beyond the table, which ends at 50"):
        model.check_ids(torch.tensor([[[51]]]))
    with pytest.raises(BadInput, match="needs max_id"):
        _model(LearnedConfig())


def test_a_random_spectrum_has_no_base():
    with pytest.raises(ValueError, match="no meaning with a random spectrum"):
        RopeConfig(base=500.0, spectrum="random")


def test_odd_head_sizes_are_refused():
    with pytest.raises(BadInput, match="rope turns 3 of 3 dimensions"):
        build_model(TransformerConfig(layers=1, width=9, heads=3), 5, 0)
    with pytest.raises(BadInput, match="do not split into pairs for 2"):
        build_model(TransformerConfig(layers=1, width=12, heads=2), 5, 0, level_sizes=(0, 0))
    with pytest.raises(BadInput, match="does not split into sines"):
        _model(SinusoidalConfig(), levels=3)


@pytest.mark.parametrize("pairs", [4, 3])
def test_the_gradient_of_a_rotation(pairs):
    """Turned back; dimensions beyond the pairs pass through."""
    x = torch.randn(2, 2, 3, 8, dtype=torch.float64, requires_grad=True)
    angles = torch.randn(2, 1, 3, pairs, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: rotate(x, (2 * angles.cos(), 2 * angles.sin())), x)
