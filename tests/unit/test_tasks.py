"""What must hold for every task."""

import pytest
import torch
from catalogue import COUPLED_TASKS, RULE_TASKS, TASKS, label
from helpers import answer_of, draw, legal
from hypothesis import given
from hypothesis import strategies as st

from longreach.api import ParityScratchpad, Planted, Span, SparseParity, VariableAssignment
from longreach.errors import BadInput
from longreach.registry import entries
from longreach.seeding import stream
from longreach.tasks import PAD

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=6)
every_task = pytest.mark.parametrize("task", TASKS, ids=label)


def test_the_catalogue_has_every_registered_task():
    assert {type(task) for task in TASKS} >= set(entries("task").values())


@every_task
@given(lengths=LENGTHS, seed=st.integers(0, 1000))
def test_the_solver_agrees_with_the_sampler(task, lengths, seed):
    sample = draw(task, legal(task, lengths), seed)
    for row in range(len(lengths)):
        assert task.solve(sample, row) == answer_of(sample, row)


@every_task
@given(lengths=LENGTHS)
def test_a_sample_has_the_promised_shape(task, lengths):
    lengths = legal(task, lengths)
    sample = draw(task, lengths)
    assert sample.tokens.shape[1] == task.max_tokens(max(lengths))
    index = torch.arange(sample.tokens.shape[1])
    inside = index < sample.num_tokens[:, None]
    assert torch.equal(sample.tokens != PAD, inside)
    assert sample.tokens.max() < len(task.vocabulary)
    assert torch.equal(sample.answer, inside & (index >= sample.prompt_tokens[:, None]))
    assert sample.length.tolist() == lengths
    assert torch.equal(task.prompt_length(sample.prompt_tokens[:1]), sample.length[:1])
    for row, size in enumerate(sample.num_tokens.tolist()):
        last = sample.tokens[row, size - 1].item()
        assert (last == task.stop_token) == (task.stop_token is not None)
        assert size <= task.max_tokens(lengths[row])


@every_task
def test_a_sample_is_the_same_in_every_batch_and_at_every_width(task):
    lengths = legal(task, [6, 9, 14, 20])
    whole = draw(task, lengths)
    alone = task.sample(torch.tensor(lengths[2:3]), stream(0, "test", torch.tensor([2])), lengths[2])
    size = int(alone.num_tokens[0])
    assert torch.equal(whole.tokens[2, :size], alone.tokens[0, :size])
    assert whole.num_tokens[2] == size


@every_task
def test_no_answer_depends_on_itself_the_future_or_too_much(task):
    lengths = legal(task, [6, 8, 13, 20] * 8)
    sample = draw(task, lengths)
    needs = task.depends_on(sample)
    assert not needs.triu().any()
    assert not (needs.any(2) & ~sample.answer).any()
    counts = needs.sum(2)
    assert (counts[sample.answer] >= 1).all()
    for row, length in enumerate(lengths):
        assert counts[row].max() <= task.sparsity(length)
    assert any(counts[row].max() == task.sparsity(length) for row, length in enumerate(lengths))


@every_task
def test_redrawing_keeps_the_answer_and_what_it_depends_on(task):
    sample = draw(task, legal(task, [6, 12, 20] * 10))
    again = task.redraw(sample, stream(5, "again", torch.arange(30)))
    needed = task.depends_on(sample).any(1) | sample.answer
    assert torch.equal(again.tokens[needed], sample.tokens[needed])
    assert torch.equal(again.num_tokens, sample.num_tokens)
    for row in range(30):
        assert task.solve(again, row) == answer_of(sample, row)
    if not isinstance(task, ParityScratchpad):  # there every token matters
        assert (again.tokens != sample.tokens).any()


def test_flipping_a_bit_that_matters_flips_the_answer():
    for task, lengths in ((SparseParity(k=Span(3, 3)), [10, 12]), (ParityScratchpad(), [5, 9])):
        sample = draw(task, lengths)
        zero, one = task.vocabulary.index("0"), task.vocabulary.index("1")
        for row in range(2):
            first = int(sample.prompt_tokens[row])
            for place in range(first):
                token = int(sample.tokens[row, place])
                if token not in (zero, one):
                    continue
                sample.tokens[row, place] = zero + one - token
                changed = task.solve(sample, row) != answer_of(sample, row)
                assert changed == bool(task.depends_on(sample)[row, :, place].any())
                sample.tokens[row, place] = token


def test_sparse_parity_marks_are_uniform():
    task = SparseParity(k=Span(3, 3))
    sample = draw(task, [12] * 20_000)
    marks = sample.tokens[:, 0:12:2] == task.vocabulary.index("+")
    assert (marks.sum(1) == 3).all()
    subsets = (marks.long() * 2 ** torch.arange(6)).sum(1)
    counts = torch.bincount(subsets, minlength=64)
    counts = counts[counts > 0]
    assert len(counts) == 20  # 6 choose 3
    assert ((counts - 1000) ** 2 / 1000).sum() < 55  # 19 degrees of freedom: p = 2e-5


def test_sparse_parity_draws_k_uniformly_up_to_the_number_of_pairs():
    sample = draw(SparseParity(k=Span(1, 8)), [8] * 4000)
    counts = torch.bincount((sample.tokens[:, :8] == 2).sum(1), minlength=5)
    assert counts[0] == 0
    assert counts[1:].min() > 900


def test_planted_laws_are_what_they_say():
    task = next(task for task in TASKS if isinstance(task, Planted) and task.vocab_size == 3)
    sample = draw(task, [20] * 5000)
    positions = sample.hidden["positions"]
    assert (positions.diff(dim=1) > 0).all()
    assert (positions[:, -1] - positions[:, 0] < 4).all()
    planted = torch.zeros(5000, 20, dtype=torch.bool).scatter_(1, positions, True)
    rest = sample.tokens[:, :20][~planted] - 1
    shares = torch.bincount(rest, minlength=3) / len(rest)
    assert torch.allclose(shares, torch.tensor([0.5, 0.25, 0.25]), atol=0.01)


@pytest.mark.parametrize("task", COUPLED_TASKS, ids=label)
@pytest.mark.parametrize("form", ["published", "aligned"])
def test_coupled_ids_count_from_one_without_gaps(task, form):
    sample = draw(task, legal(task, [6, 9, 20]))
    ids = task.coupling(sample, form)
    assert ids.shape == (3, len(task.coupling_levels), sample.tokens.shape[1])
    index = torch.arange(ids.shape[2])
    assert not ids.masked_fill((index < sample.num_tokens[:, None])[:, None], 0).any()
    for row in ids.flatten(0, 1):
        used = row[row > 0].unique()
        assert used.tolist() == list(range(1, len(used) + 1))


@pytest.mark.parametrize("task", RULE_TASKS, ids=label)
@pytest.mark.parametrize("form", ["published", "aligned"])
def test_a_rule_needs_the_prompt_only(task, form):
    sample = draw(task, legal(task, [6, 9, 20]))
    assert torch.equal(task.coupling(sample, form), task.coupling(sample.prompt_only(), form))


def test_aligned_means_distance_zero():
    """The token that a step starts from shares its ID with every prompt token that the step reads."""
    parity = ParityScratchpad()
    chain = VariableAssignment(num_names=60, hops=Span(1, 4), name_tokens=2)
    for task in (parity, chain):
        sample = draw(task, [7, 12])
        ids = task.coupling(sample, "aligned")
        needs = task.depends_on(sample)
        for row in range(2):
            first, last = int(sample.prompt_tokens[row]), int(sample.num_tokens[row]) - 1
            steps = range(first, last + 1) if task is parity else range(first + 1, last)
            for step in steps:
                read = [
                    j for j in needs[row, step].nonzero()[:, 0].tolist() if j < first - (1 if task is parity else 3)
                ]
                assert read
                assert {int(ids[row, 0, j]) for j in read} == {int(ids[row, 0, step - 1])}
                if task is chain:  # the second level points at the very token
                    assert int(ids[row, 1, read[-1]]) == int(ids[row, 1, step - 1])


def test_published_parity_ids_are_those_of_the_paper():
    # Cho et al.: token i has S+1+i on both sides and the sign has S; S = 1 in evaluation, i counts from 0
    sample = draw(ParityScratchpad(), [4])
    assert ParityScratchpad().coupling(sample, "published")[0, 0].tolist() == [2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 0]
    assert ParityScratchpad().coupling(sample, "aligned")[0, 0].tolist() == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0]


def test_a_given_query_id_names_the_first_statement():
    task = VariableAssignment(num_names=60, query_id="given")
    sample = draw(task, [8])
    query = int(sample.prompt_tokens[0]) - 1
    for form in ("published", "aligned"):
        ids = task.coupling(sample, form)[0, 0]
        statement = int(ids[query])
        assert sample.tokens[0, 2 * (statement - 1)] == sample.tokens[0, query]


def test_names_on_the_left_differ_and_distractors_may_point_into_the_chain():
    for into, inside in ((0.0, False), (1.0, True)):
        task = VariableAssignment(num_names=40, into_chain=into, hops=Span(2, 2))
        sample = draw(task, [10] * 50)
        for row in range(50):
            left = sample.tokens[row, 0:20:2].tolist()
            right = sample.tokens[row, 1:20:2].tolist()
            assert len(set(left)) == 10
            chain = [int(sample.tokens[row, 21]), *answer_of(sample, row)[:2]]
            distractors = [(a, b) for a, b in zip(left, right, strict=True) if a not in chain]
            assert all((b in chain) == inside for _, b in distractors)


@pytest.mark.parametrize(
    ("task", "length", "complaint"),
    [
        (SparseParity(), 7, "must be even, got 7"),
        (SparseParity(k=Span(9, 9)), 10, "too few for k=9"),
        (ParityScratchpad(), 0, "must be at least 1, got 0"),
        (Planted(k=5), 4, "must be at least 5"),
        (VariableAssignment(), 2, "too short for 3 hops"),
        (VariableAssignment(num_names=20), 16, "needs 21 names, num_names is 20"),
    ],
)
def test_impossible_lengths_are_refused(task, length, complaint):
    with pytest.raises(BadInput, match=complaint):
        task.check_length(length)


def test_prompts_typed_by_people():
    parity = ParityScratchpad()
    assert parity.words(parity.parse("101")) == ["1", "0", "1", ";", "="]
    assert parity.parse("1 0 1 ; =") == parity.parse("101")
    with pytest.raises(BadInput, match="'2' is not a token"):
        parity.parse("102")
    sparse = SparseParity()
    assert sparse.parse("-1 +0") == sparse.parse("- 1 + 0")
    chain = VariableAssignment(num_names=60)
    assert chain.words(chain.parse("a b b c ? a")) == ["a", "b", "b", "c", "?", "a"]
    cycle = chain.prompt(chain.parse("a b b a ? a"), 9)
    with pytest.raises(BadInput, match="returns to a"):
        chain.solve(cycle, 0)
    for bad in ("1;=01", "= 1"):
        with pytest.raises(BadInput, match="a prompt is bits"):
            parity.parse(bad)
    with pytest.raises(BadInput, match="alternate"):
        sparse.parse("1111")
    with pytest.raises(BadInput, match="no label in it"):
        Planted().parse("x0 y1")
    for bad, why in (("a b b ? a", "a statement has 2 tokens"), ("a b", "ends with"), ("", "empty")):
        with pytest.raises(BadInput, match=why):
            chain.parse(bad)


def test_a_long_sample_is_as_right_as_a_short_one():
    for task, length in (
        (SparseParity(), 5000),
        (ParityScratchpad(), 4000),
        (VariableAssignment(num_names=5000, name_tokens=2), 2000),
    ):
        sample = draw(task, [length])
        assert task.solve(sample, 0) == answer_of(sample, 0)
