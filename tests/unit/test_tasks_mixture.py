"""Mixtures: every row is a sample of its own task, whatever the others are."""

from dataclasses import replace

import pytest
import torch
from helpers import TINY, answer_of, draw, execute_in

from longreach.api import (
    Addition,
    EvalConfig,
    GraphWalk,
    IndexHints,
    Lengths,
    ParityScratchpad,
    Planted,
    PointerChasing,
    PointerConfig,
    Predicted,
    RunConfig,
    Sequential,
    Span,
    SparseParity,
    Tape,
    Task,
    TrainConfig,
    VariableAssignment,
)
from longreach.config import build_part, to_plain
from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.tasks import Copy, Mixture, OddsFirst, Reverse

EVERYTHING = Mixture(
    of=(
        Tape(),
        Planted(),
        SparseParity(),
        IndexHints(of=Addition(), num_hints=99),
        GraphWalk(num_names=40, degree=3),
        VariableAssignment(num_names=60, end="marked"),
        Copy(),
        Copy(symbols=3, times=2),
    )
)


def test_every_row_is_a_sample_of_its_own_task():
    sample = draw(EVERYTHING, [6, 8, 14, 20] * 16)
    names = [EVERYTHING.vocabulary[token] for token in sample.tokens[:, 0].tolist()]
    assert set(names) == {
        *("<tape>", "<planted>", "<sparse_parity>", "<index_hints>", "<graph_walk>"),
        *("<variable_assignment>", "<copy>", "<copy:2>"),
    }
    needs = EVERYTHING.depends_on(sample)
    again = EVERYTHING.redraw(sample, stream(3, "again", torch.arange(64)))
    assert (again.tokens != sample.tokens).any()
    for row, name in enumerate(names):
        number = EVERYTHING._names.index(name)
        task = EVERYTHING.of[number]
        # the same sample, drawn by the task alone
        one = torch.tensor([row])
        alone = task.sample(sample.length[one], stream(0, "test", one).child(f"task {number}"), 20)
        size = int(alone.num_tokens)
        words = EVERYTHING.words(sample.tokens[row].tolist())
        stop = ["."] if task.stop_token is None else []
        assert words[1 : size + 1 + len(stop)] == [*task.words(alone.tokens[0, :size].tolist()), *stop]
        assert int(sample.num_tokens[row]) == size + 1 + len(stop)
        assert torch.equal(sample.given[row, 1 : size + 1], alone.given[0, :size])
        assert EVERYTHING.solve(sample, row) == EVERYTHING.solve(again, row) == answer_of(sample, row)
        theirs = task.depends_on(alone)[0, :size, :size]
        assert torch.equal(needs[row, 1 : size + 1, 1 : size + 1], theirs)
        predicted = sample.answer[row] & ~sample.given[row]
        assert torch.equal(needs[row, :, 0], predicted)


def test_coupling_is_that_of_each_task():
    task = Mixture(of=(ParityScratchpad(), Addition(), Reverse(), Tape()))
    sample = draw(task, [3, 5, 9] * 8)
    for form in ("published", "aligned"):
        ids = task.coupling(sample, form)
        assert not ids[:, :, 0].any()
        for row in range(24):
            number = int(sample.tokens[row, 0]) - 1
            one = torch.tensor([row])
            alone = task.of[number].sample(sample.length[one], stream(0, "test", one).child(f"task {number}"), 9)
            size = int(alone.num_tokens)
            assert torch.equal(ids[row, :, 1 : size + 1], task.of[number].coupling(alone, form)[0, :, :size])
            assert not ids[row, :, size + 1 :].any()
    assert not task.coupling_by_rule
    assert Mixture(of=(ParityScratchpad(), Addition())).coupling_by_rule
    levels = Mixture(of=(GraphWalk(degree=1), VariableAssignment())).coupling_levels
    assert [(level.name, level.size) for level in levels] == [
        ("node or statement", 0),
        ("field or token in statement", 2),
    ]


@pytest.mark.parametrize("other", [GraphWalk(), PointerChasing(), Planted()])
def test_tasks_that_disagree_on_levels_have_no_coupling_together(other):
    task = Mixture(of=(Copy(), other) if not isinstance(other, PointerChasing) else (GraphWalk(), other))
    assert task.coupling_levels == ()
    with pytest.raises(BadInput, match="mixture has no known coupling"):
        task.coupling(draw(task, [6]), "aligned")


def test_tasks_come_by_their_weights():
    task = Mixture(of=(Copy(), OddsFirst(), Reverse()), weights=(1.0, 2.0, 5.0))
    choice = draw(task, [4] * 8000).tokens[:, 0] - 1
    shares = torch.bincount(choice, minlength=3)
    assert (shares - torch.tensor([1000, 2000, 5000])).abs().max() < 220  # 4.9 standard deviations


def test_tasks_share_words_and_the_stop():
    task = Mixture(of=(ParityScratchpad(), Addition()))
    assert task.vocabulary[:3] == ("_", "<parity_scratchpad>", "<addition>")
    assert len(set(task.vocabulary)) == len(task.vocabulary)
    assert task.vocabulary[task.stop_token] == "."
    assert Mixture(of=(SparseParity(), Planted())).stop_token is None


def test_typed_prompts():
    task = Mixture(of=(Addition(), SparseParity(), Copy()))
    for text, answer in (
        ("addition 37 + 48", "5' 8 0 ."),
        ("<sparse_parity> - 1 + 0 + 1", "1 ."),
        ("copy c a b", "c a b ."),
    ):
        prompt = task.prompt_batch(task.parse(text), 9)
        assert " ".join(task.words(task.solve(prompt, 0))) == answer
    assert task.prompt_batch(task.parse("addition 37 + 48"), 9).length.tolist() == [2]
    with pytest.raises(BadInput, match="begins with the name of its task; did you mean <copy>"):
        task.parse("copies c a b")
    with pytest.raises(BadInput, match="is not a token"):
        task.parse("copy 1 2")
    wrong = task.prompt_batch(task.parse("copy c a b"), 9)
    with pytest.raises(BadInput, match="'c' is not a token of addition"):
        task.solve(replace(wrong, tokens=wrong.tokens.index_fill(1, torch.tensor([0]), 1)), 0)


def test_recipes():
    task = build_part(Task, {"name": "mixture", "of": ["copy", {"name": "addition", "carry": "hidden"}]}, "task")
    assert task == Mixture(of=(Copy(), Addition(carry="hidden")))
    assert build_part(Task, to_plain(task), "task") == task
    for bad, complaint in (
        ({"of": []}, "must name a task"),
        ({"weights": [1.0]}, "weights must be 2 positive numbers, got .1.0."),
        ({"weights": [1.0, 0.0]}, "weights must be 2 positive numbers"),
        ({"of": ["copy", "nothing"]}, r"of\[1\]: unknown task 'nothing'"),
    ):
        with pytest.raises(BadInput, match=complaint):
            build_part(Task, {"name": "mixture", **bad}, "task")
    with pytest.raises(BadInput, match="must be even, got 7"):
        Mixture(of=(Copy(), SparseParity())).check_length(7)


@pytest.mark.parametrize(
    ("task", "ids", "head"),
    [
        (Mixture(of=(SparseParity(), Copy(symbols=4))), Sequential(), None),
        (Mixture(of=(Tape(), ParityScratchpad())), Predicted(max_id=60), PointerConfig()),
    ],
)
def test_a_mixture_trains_and_is_tested(tmp_path, task, ids, head):
    config = RunConfig(
        task=task,
        ids=ids,
        model=replace(TINY, position_head=head),
        train=TrainConfig(lengths=Span(2, 6), steps=3, batch_size=8),
        evaluate=EvalConfig(lengths=Lengths((4, 8)), samples=6, free_samples=6),
    )
    scores = execute_in(tmp_path / "run", config).scores()
    assert {score.length for score in scores if score.metric == "token_em_free"} == {4, 8}
