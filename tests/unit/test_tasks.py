"""What must hold for every task."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from catalogue import COUPLED_TASKS, RULE_TASKS, TASKS, label
from helpers import answer_of, draw, legal
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from longreach.api import (
    Addition,
    GraphWalk,
    IndexHints,
    ParityScratchpad,
    Planted,
    PointerChasing,
    Sample,
    Span,
    SparseParity,
    Tape,
    Task,
    VariableAssignment,
)
from longreach.config import build_part, to_plain
from longreach.config.registry import entries
from longreach.errors import BadInput
from longreach.seeding import Draws, stream
from longreach.tasks import PAD, Multiplication, Worksheet

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=6)
every_task = pytest.mark.parametrize("task", TASKS, ids=label)


def test_the_catalogue_has_every_registered_task():
    """But for text and jsonl, which are read from files and have tests of their own."""
    drawn = {task for task in entries("task").values() if not task().reads_files}
    assert {type(task) for task in TASKS} >= drawn
    assert len(drawn) == len(entries("task")) - 2


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
    assert sample.answer.sum(1).max() <= task.max_answer(max(lengths))
    assert bool(sample.given.any()) == task.has_given
    assert torch.equal(sample.tokens != PAD, inside)
    assert sample.tokens.max() < len(task.vocabulary)
    assert torch.equal(sample.answer, inside & (index >= sample.prompt_tokens[:, None]))
    assert sample.length.tolist() == lengths
    assert not (sample.given & ~sample.answer).any()
    prompt = sample.tokens[0, : int(sample.prompt_tokens[0])].tolist()
    assert task.prompt_batch(prompt, 1).length.tolist() == lengths[:1]
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
    predicted = sample.answer & ~sample.given
    assert not (needs.any(2) & ~predicted).any()
    counts = needs.sum(2)
    assert (counts[predicted] >= 1).all()
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
    signs = torch.tensor([not any(character.isalnum() for character in word) for word in task.vocabulary])
    in_prompt = torch.arange(sample.tokens.shape[1]) < sample.prompt_tokens[:, None]
    if (in_prompt & ~needed & ~signs[sample.tokens]).any() and not isinstance(task, IndexHints):
        assert (again.tokens != sample.tokens).any()


@every_task
def test_the_solver_agrees_with_the_sampler_at_every_length_up_to_200(task):
    lengths = list(range(1, 201, 20 if task.draws_on_host else 1))  # Python takes its time
    sample = draw(task, legal(task, lengths), seed=7)
    for row in range(len(lengths)):
        assert task.solve(sample, row) == answer_of(sample, row)


@every_task
def test_everything_that_is_listed_matters(task):
    """Each place of a prompt that some answer needs: in some sample, another token there changes the answer.

    A sign that no other can replace, or the prompt is none any more, matters too.
    """
    if isinstance(task, IndexHints):
        pytest.skip("hints say the same twice: no single token decides")
    sample = draw(task, legal(task, [6] * 60), seed=3)
    listed = task.depends_on(sample).any(1) & (torch.arange(sample.tokens.shape[1]) < sample.prompt_tokens[:, None])
    shown = 0
    for place in listed.any(0).nonzero()[:, 0].tolist():
        words = sample.tokens[:, place].unique().tolist()
        if len(sample.tokens[listed[:, place], place].unique()) > 1:  # not the same wherever it is needed
            rows = listed[:, place].nonzero()[:, 0].tolist()
            others = (other for row in rows for other in _others(task, sample.rows(row, row + 1), place, words))
            first = next(others, None)
            assert first is None or first or any(others)
            shown += first is not None
    assert shown  # a solver that refuses every change shows nothing


def _others(task: Task, sample: Sample, place: int, words: list[int]) -> Iterator[bool]:
    """Whether the answer changes, for each prompt with another token in this place: one of these words, or one that it
    changes places with."""
    tokens, answer = sample.tokens[0], answer_of(sample, 0)
    changes = [{place: word} for word in words]
    changes += [{place: int(tokens[o]), o: int(tokens[place])} for o in range(int(sample.prompt_tokens[0]))]
    for change in changes:
        changed = tokens.clone()
        for at, word in change.items():
            changed[at] = word
        if torch.equal(changed, tokens):
            continue
        try:
            yield task.solve(replace(sample, tokens=changed[None]), 0) != answer
        except BadInput:  # no prompt any more
            continue


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


@pytest.mark.parametrize("task", COUPLED_TASKS, ids=label)
@pytest.mark.parametrize("form", ["published", "aligned"])
def test_the_ids_of_a_prompt_need_the_prompt_only(task, form):
    if getattr(task, "query_id", "") == "given":
        pytest.skip("the ID of the query is part of the answer, given away")
    sample = draw(task, legal(task, [6, 9, 20]))
    in_prompt = torch.arange(sample.tokens.shape[1]) < sample.prompt_tokens[:, None]
    ids, of_prompt = task.coupling(sample, form), task.coupling(sample.prompt_only(), form)
    assert torch.equal(ids * in_prompt[:, None], of_prompt * in_prompt[:, None])


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


@pytest.mark.parametrize(
    "task",
    [task for task in COUPLED_TASKS if isinstance(task, Tape | PointerChasing | GraphWalk | Addition | Worksheet)],
    ids=label,
)
def test_aligned_ids_lead_to_what_a_step_reads(task):
    """Whatever ID a step starts from, one of the tokens that it reads has it, besides the one it starts from."""
    sample = draw(task, legal(task, [6, 9, 12]))
    ids, needs = task.coupling(sample, "aligned"), task.depends_on(sample)
    grows = [number for number, level in enumerate(task.coupling_levels) if level.grows]
    if isinstance(task, Multiplication):
        grows = grows[:2]  # the third level of its scratchpad says what a digit is, for later steps to find
    for row, step in (sample.answer & ~sample.given).nonzero().tolist():
        if sample.tokens[row, step] == task.stop_token:
            continue
        read = needs[row, step] & (torch.arange(needs.shape[2]) != step - 1)
        start = ids[row, :, step - 1]
        assert (start[0] > 0) or step == sample.prompt_tokens[row] or isinstance(task, Addition | Worksheet)
        for level in grows:
            assert start[level] == 0 or start[level] in ids[row, level, read]


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


@pytest.mark.parametrize("end", ["absent", "marked"])
@pytest.mark.parametrize("hops", [Span(3, 3), Span(1, 4)])
def test_only_the_query_tells_the_chain_from_the_others(end, hops):
    task = VariableAssignment(num_names=500, hops=hops, end=end)
    for length in (4, 23, 150):
        sample = draw(task, [length] * 40)
        chains, ends = [], 0
        for row in range(40):
            prompt = task.words(sample.tokens[row, : 2 * length].tolist())
            points = dict(zip(prompt[::2], prompt[1::2], strict=True))
            left, right = [*points], [name for name in points.values() if name != "."]
            assert len(left) == length
            assert len(set(right)) == len(right)  # no name stands on the right twice
            starts = [name for name in left if name not in right]
            sizes = []
            for name in starts:
                size = 0
                while (name := points.get(name, ".")) != ".":
                    size += 1
                sizes.append(size)
            assert sum(sizes) + len(starts) * (end == "marked") == length  # chains, and nothing else
            assert all(size <= hops.high for size in sizes)
            assert sum(size < hops.low for size in sizes) <= 1  # the last one is cut to fit
            chains += sizes
            ends += prompt.count(".")
        assert ends == len(chains) * (end == "marked")
        if length == 150 and hops.low < hops.high:
            assert set(range(1, 5)) <= set(chains)


def test_names_on_the_left_differ_and_distractors_may_point_into_the_chain():
    for into, inside in ((0.0, False), (1.0, True)):
        task = VariableAssignment(num_names=40, distractors="pointers", into_chain=into, hops=Span(2, 2))
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
        (Tape(), 1, "at least 2, got 1"),
        (PointerChasing(num_names=9), 10, "in 2..9 .num_names., got 10"),
        (GraphWalk(num_names=9), 1, "in 2..9 .num_names., got 1"),
        (Addition(), 0, "must be at least 1, got 0"),
        (VariableAssignment(num_names=20), 16, "needs 23 names, num_names is 20"),
        (VariableAssignment(num_names=20, end="marked"), 20, "needs 21 names, num_names is 20"),
        (VariableAssignment(num_names=20, distractors="pointers"), 16, "needs 21 names, num_names is 20"),
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
    cycle = chain.prompt_batch(chain.parse("a b b a ? a"), 9)
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


def test_prompts_of_sums_walks_and_tapes_typed_by_people():
    addition = Addition()
    assert addition.words(addition.parse("37 + 8")) == [";", "3", "7", "+", "0", "8", "="]
    assert addition.parse("; 3 7 + 0 8 =") == addition.parse("37+8")
    for bad in ("37", "3a + 1", "1 + 2 + 3", "+ 1", ""):
        with pytest.raises(BadInput, match="two numbers"):
            addition.parse(bad)
    tape = Tape()
    assert tape.words(tape.parse("a b ^ c")) == ["a", "b", "^", "c", "="]
    for bad in ("a b c", "a ^ ^ b", "a b ^", "a ^ b = c"):
        with pytest.raises(BadInput, match="cells with one"):
            tape.parse(bad)
    pointers = PointerChasing(num_names=60)
    question = pointers.prompt_batch(pointers.parse("b c a b c a ? a # # # # ; ="), 9)
    assert pointers.words(pointers.solve(question, 0)) == ["a", "b", "c", "a", "b", "."]  # round the cycle
    for bad in ("a b b a ? a #", "a b b ? a # ; =", "? a # ; =", "a b b a ? # ; =", "a b b a"):
        with pytest.raises(BadInput, match="statements and a question"):
            pointers.parse(bad)
    with pytest.raises(BadInput, match="where c leads to"):
        pointers.solve(pointers.prompt_batch(pointers.parse("a b b c ? a # # # ; ="), 9), 0)
    graph = GraphWalk(num_names=60)
    assert graph.parse("a b b b a a ? a") == graph.parse("a b b b a a ? a =")
    for bad in ("a b b a a ? a", "a b b", "a b b >1 a a ? a", "a b b a ? a a"):
        with pytest.raises(BadInput, match="statements of 3 names"):
            graph.parse(bad)
    for task, text in ((tape, "a ^ b"), (graph, "a b b b a a ? a")):  # who predicts has no moves to go by
        with pytest.raises(BadInput, match="also needs the moves"):
            task.solve(task.prompt_batch(task.parse(text), 9), 0)


def test_a_long_sample_is_as_right_as_a_short_one():
    for task, length in (
        (SparseParity(), 5000),
        (ParityScratchpad(), 4000),
        (VariableAssignment(num_names=5000, name_tokens=2), 2000),
        (Tape(), 3000),
        (PointerChasing(num_names=3000, hops=Span(500, 500)), 2000),
        (GraphWalk(num_names=3000, steps=Span(500, 500)), 2000),
        (Addition(), 5000),
    ):
        sample = draw(task, [length])
        assert task.solve(sample, 0) == answer_of(sample, 0)


WORKED: list[tuple[Task, int, str, list[str], list[str]]] = [
    (
        Tape(steps=Span(3, 3)),
        4,
        "c b c ^ a =  a < c < b > c .",
        ["1 2 3 4 4 0  4 4 3 3 2 2 3 0"],
        ["1 2 3 4 4 4  4 3 3 2 2 3 3 0"],
    ),
    (
        PointerChasing(num_names=5, hops=Span(2, 2)),
        3,
        "c d d b b c ? b # # ; =  b c d .",
        ["1 1 2 2 3 3 0 0 0 0 0 0  0 3 1 0", "0 0 0 0 0 0 0 0 1 2 3 0  0 1 2 0"],
        ["1 1 2 2 3 3 0 0 0 0 0 0  3 1 2 0", "0 0 0 0 0 0 0 0 1 2 3 0  1 2 3 0"],
    ),
    (
        GraphWalk(num_names=5, steps=Span(3, 3)),
        3,
        "b c b c c b d b b ? d =  d >2 b >2 b >1 c .",
        ["1 1 1 2 2 2 3 3 3 0 0 0  0 3 3 1 1 1 1 0", "1 2 3 1 2 3 1 2 3 0 0 0  0 0 3 0 3 0 2 0"],
        ["1 1 1 2 2 2 3 3 3 0 0 0  3 3 1 1 1 1 2 0", "1 2 3 1 2 3 1 2 3 0 0 0  1 3 1 3 1 2 1 0"],
    ),
    (Addition(), 2, "; 2 1 + 5 6 =  7 7 0 .", ["4 3 2 1 3 2 1  2 3 4 0"], ["3 2 1 0 2 1 1  2 3 0 0"]),
]


@pytest.mark.parametrize(("task", "length", "words", "published", "aligned"), WORKED, ids=label)
def test_worked_examples(task, length, words, published, aligned):
    sample = draw(task, [length])
    assert task.words(sample.tokens[0].tolist()) == words.split()
    for form, ids in (("published", published), ("aligned", aligned)):
        assert task.coupling(sample, form)[0].tolist() == [[int(i) for i in level.split()] for level in ids]
    drawn = [task.vocabulary[token] for token in sample.tokens[0][sample.given[0]].tolist()]
    assert drawn == [word for word in words.split("=")[1].split() if word[0] in "<>."][: len(drawn)]
    assert bool(drawn) == isinstance(task, Tape | GraphWalk)


@every_task
def test_sampling_never_waits_for_the_device(task):
    """Tensors without values: whatever looks at one fails."""
    if isinstance(task, Planted):
        pytest.skip("it keeps its tables from call to call, and must not keep these")
    if task.draws_on_host:
        pytest.skip("it draws in Python")
    with FakeTensorMode():
        rows = torch.zeros(4, dtype=torch.long)
        sample = task.sample(rows, Draws(rows), 20)
        if task.coupling_levels:
            assert task.coupling(sample, "aligned").shape == task.coupling(sample.prompt_only(), "published").shape


def test_the_tape_head_walks_freely_and_turns_at_the_ends():
    sample = draw(Tape(steps=Span(40, 40)), [5] * 4000)
    head = sample.hidden["head"][:, :41]
    starts = torch.bincount(head[:, 0], minlength=5)
    assert (starts - 800).abs().max() < 120  # 4.7 standard deviations
    before, move = head[:, :-1], head.diff(dim=1)
    assert (move.abs() == 1).all()
    assert (move[before == 0] == 1).all()
    assert (move[before == 4] == -1).all()
    for cell in (1, 2, 3):
        assert abs(move[before == cell].double().mean()) < 0.025  # of some 40,000 moves: 5 standard deviations
    inside = (before[:, :-1] > 0) & (before[:, :-1] < 4) & (before[:, 1:] > 0) & (before[:, 1:] < 4)
    assert abs((move[:, :-1] * move[:, 1:])[inside].double().mean()) < 0.025  # no move depends on the one before


@pytest.mark.parametrize("carry", ["written", "hidden"])
def test_addition_adds(carry):
    task = Addition(carry=carry)
    sample = draw(task, [1, 2, 3, 19, 60] * 200)
    for row, size in enumerate(sample.prompt_tokens.tolist()):
        words = task.words(sample.tokens[row].tolist())
        first, second = "".join(words[1 : size - 1]).split("+")
        *answer, stop = words[size : int(sample.num_tokens[row])]
        assert len(answer) == len(first) + 1 == len(second) + 1
        assert int("".join(digit[0] for digit in reversed(answer))) == int(first) + int(second)
        for i, digit in enumerate(answer, start=1):
            carries = int(first[-i:]) + int(second[-i:]) >= 10**i and i <= len(first)
            assert (len(digit) == 2) == (carries and carry == "written")
        assert stop == "."


def test_pointers_form_one_cycle():
    task = PointerChasing(num_names=12)
    sample = draw(task, [2, 7, 12] * 100)
    for row, length in enumerate(sample.length.tolist()):
        pairs = sample.tokens[row, : 2 * length].tolist()
        leads_to = dict(zip(pairs[::2], pairs[1::2], strict=True))
        at, met = pairs[0], set()
        while at not in met:
            met.add(at)
            at = leads_to[at]
        assert len(met) == len(leads_to) == length
    three = draw(task, [3] * 6000)  # of the statement in front, each of the two others is the right side
    second = three.tokens[:, 1] == three.tokens[:, 2]
    assert abs(second.double().mean() - 0.5) < 0.03


def test_graph_moves_and_edges_are_uniform():
    task = GraphWalk(num_names=8, degree=3)
    sample = draw(task, [4] * 4000)
    for facts, count in (
        (sample.hidden["moves"], 3),
        (sample.hidden["targets"], 4),
        (sample.hidden["nodes"][:, :1], 4),
    ):
        shares = torch.bincount(facts.flatten(), minlength=count) / facts.numel()
        assert torch.allclose(shares, torch.full((count,), 1 / count), atol=0.03)


def test_tasks_from_recipes():
    for steps in (None, "3..9", 4):
        task = build_part(Task, {"name": "tape", "steps": steps}, "task")
        assert to_plain(task)["steps"] == (None if steps is None else str(steps))
    with pytest.raises(BadInput, match="steps: expected"):
        build_part(Task, {"name": "tape", "steps": "many"}, "task")
    for bad, complaint in (
        ({"name": "tape", "symbols": 1}, "symbols must be at least 2, got 1"),
        ({"name": "tape", "steps": 0}, "steps must be at least 1, got 0"),
        ({"name": "pointer_chasing", "hops": "0..3"}, "hops must be at least 1, got 0..3"),
        ({"name": "graph_walk", "degree": 10}, "degree must be in 1..9, got 10"),
        ({"name": "graph_walk", "steps": 0}, "steps must be at least 1, got 0"),
        ({"name": "addition", "carry": "seen"}, "unknown value 'seen'"),
    ):
        with pytest.raises(BadInput, match=complaint):
            build_part(Task, bad, "task")
