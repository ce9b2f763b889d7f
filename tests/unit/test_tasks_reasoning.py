"""What is particular to machines, mazes, assignments and commands."""

import pytest
import torch
from helpers import answer_of, draw

from longreach.api import Span, Task
from longreach.config import build_part
from longreach.errors import BadInput
from longreach.tasks import Turing


def solved(task: Task, text: str) -> str:
    """The answer to a prompt typed by a person."""
    return " ".join(task.words(task.solve(task.prompt(task.parse(text), 1), 0)))


def ids_of(task: Task, sample, form: str) -> list[str]:
    return [" ".join(map(str, level)) for level in task.coupling(sample, form)[0].tolist()]


FLIP = "A a > b A  A b > a A  A [ > [ A  A ] < ] A"


def test_a_turing_machine_step_by_step():
    task = Turing(states=1)
    sample = draw(task, [3], seed=1)
    words = "A [ > [ A A ] < ] A A a < b A A b > a A [ b b A b ] # # # ; =  A b > a A ] < ] A a < b ."
    assert task.words(sample.tokens[0].tolist()) == words.split()
    rules = "1 1 1 1 1 2 2 2 2 2 3 3 3 3 3 4 4 4 4 4"
    fields = "1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5"
    nothing = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    assert ids_of(task, sample, "published") == [
        f"{nothing} 1 2 3 4 4 5 0 0 0 0 0 4 4 4 4 4 5 5 5 5 4 4 4 0",
        f"{rules} 0 0 0 0 0 0 0 0 0 0 0 0 0 4 4 4 0 2 2 2 0 3 3 0",
        f"{fields} 4 4 4 1 4 4 0 0 0 0 0 1 4 3 4 5 4 3 4 5 4 3 4 0",
        f"{nothing} 0 0 0 0 0 0 1 2 3 4 0 1 0 0 0 2 0 0 0 3 0 0 0 0",
    ]
    assert ids_of(task, sample, "aligned") == [
        f"{nothing} 1 2 3 4 4 5 0 0 0 0 4 4 4 4 4 5 5 5 5 4 4 4 4 0",
        f"{rules} 0 0 0 0 0 0 0 0 0 0 0 0 4 4 4 0 2 2 2 0 3 3 3 0",
        f"{fields} 5 5 5 1 5 5 0 0 0 0 1 5 3 4 5 5 3 4 5 5 3 4 5 0",
        f"{nothing} 0 0 0 0 0 0 1 2 3 4 1 0 0 0 2 0 0 0 3 0 0 0 4 0",
    ]


def test_a_typed_turing_machine_writes_on_its_tape():
    task = Turing(states=1)
    # at the end it turns, reads what it wrote a moment ago, and finds the end again
    answer = "A a > b A b > a A ] < ] A a > b A ] < ] ."
    assert solved(task, f"{FLIP} [ A a b ] # # # # # ;") == answer
    assert task.prompt(task.parse(f"{FLIP} [ A a b ] # # ; ="), 1).length.tolist() == [2]


@pytest.mark.parametrize("task", [Turing(states=3, symbols=4), Turing(steps=Span(1, 40))])
def test_a_turing_machine_copies_what_it_reads(task):
    """A symbol read is the one written last at that place, all else stands in the rule."""
    sample = draw(task, [6, 9, 15] * 20)
    reads, step = task.reads(sample), task.step(sample)
    for field, column in ((1, 1), (2, 4), (3, 4)):
        chosen = sample.answer & (step % 4 == field)
        source = sample.tokens.gather(1, reads[:, :, column].clamp(min=0))
        assert torch.equal(source[chosen], sample.tokens[chosen])
    ids = task.coupling(sample, "aligned")
    for row, at in (sample.answer & (step % 4 == 1)).nonzero().tolist():
        # among the tokens before it that have its cell and its field and are no states, the latest is the one read
        same = (ids[row, :, :at] == ids[row, :, at - 1 : at])[[0, 2]].all(0) & (
            sample.tokens[row, :at] < 9 + task.symbols
        )
        assert int(same.nonzero().max()) == int(reads[row, at, 1])


def test_turing_tables_are_complete_and_uniform_without_sweeps():
    task = Turing(states=3, symbols=2, sweep=0.0)
    sample = draw(task, [6] * 2000)
    rules = sample.tokens[:, :60].view(-1, 12, 5)
    pairs = (rules[:, :, 0] * 100 + rules[:, :, 1]).sort(1).values
    assert (pairs == pairs[0]).all()
    assert len(pairs[0].unique()) == 12
    assert (torch.bincount(rules[:, 0, 0])[-3:] / 2000 - 1 / 3).abs().max() < 0.05  # in any order
    inner = rules[rules[:, :, 1] < 9]  # 12,000 rules that read no end
    for field, first, count in ((2, 5, 2), (3, 7, 2), (4, 11, 3)):
        shares = torch.bincount(inner[:, field] - first, minlength=count) / len(inner)
        assert (shares - 1 / count).abs().max() < 0.02
    start = sample.hidden["head"][:, 0]
    assert (torch.bincount(start, minlength=8)[1:7] / 2000 - 1 / 6).abs().max() < 0.04


def test_a_sweeping_head_turns_at_the_ends_only():
    sample = draw(Turing(sweep=1.0, steps=Span(60, 60)), [9] * 200)
    head = sample.hidden["head"]
    move = head.diff(dim=1)
    turns = move[:, 1:] != move[:, :-1]
    assert turns.any()
    assert set(head[:, 1:-1][turns].tolist()) == {0, 10}
    assert {*head.flatten().tolist()} == set(range(11))


def test_a_long_turing_machine_is_as_right_as_a_short_one():
    task = Turing(steps=Span(900, 900))
    sample = draw(task, [300])
    assert task.solve(sample, 0) == answer_of(sample, 0)


@pytest.mark.parametrize(
    "bad",
    [
        "[ A a b ] # ;",  # no rules
        f"{FLIP} [ a b ] # ;",  # no head
        f"{FLIP} [ A a A b ] # ;",
        f"{FLIP} [ a b A ] # ;",
        f"{FLIP} [ A a b # ;",
        f"{FLIP} A a b ] # ;",
        f"{FLIP} [ A a b ] ;",
        f"{FLIP} [ A a b ] # < ;",
        FLIP.replace("A b > a", "A a > a") + " [ A a b ] # ;",  # a rule twice
        FLIP.replace("[ > [", "[ < [") + " [ A a b ] # ;",  # falls off the tape
        FLIP.replace("[ > [", "[ > a") + " [ A a b ] # ;",
        FLIP.replace("a > b", "a > ]") + " [ A a b ] # ;",
    ],
)
def test_what_is_no_turing_machine_is_refused(bad):
    with pytest.raises(BadInput, match="turing: a prompt is 4 rules"):
        Turing(states=1).parse(bad)


def test_settings_that_make_no_sense_are_refused():
    for bad, complaint in (
        ({"name": "turing", "states": 0}, "turing.states must be at least 1, got 0"),
        ({"name": "turing", "symbols": 1}, "turing.symbols must be at least 2, got 1"),
        ({"name": "turing", "steps": "0..3"}, "turing.steps must be at least 1, got 0..3"),
        ({"name": "turing", "sweep": 1.5}, "turing.sweep must be in 0..1, got 1.5"),
    ):
        with pytest.raises(BadInput, match=complaint):
            build_part(Task, bad, "task")
