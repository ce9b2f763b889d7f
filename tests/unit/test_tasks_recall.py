"""Recall: worked examples, laws, and checks by another way."""

import itertools
from collections import Counter

import pytest
import torch
from helpers import answer_of, draw

from longreach.api import Sample, Span, Task
from longreach.config import build_part
from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.tasks import AssociativeRecall, Mqmtar
from longreach.tasks.names import renew


def rows_of(task: Task, sample: Sample) -> list[tuple[list[str], list[str]]]:
    """Prompt and answer of every row, in words."""
    rows = zip(sample.tokens.tolist(), sample.prompt_tokens.tolist(), sample.num_tokens.tolist(), strict=True)
    return [(task.words(row[:start]), task.words(row[start:end])) for row, start, end in rows]


def even(values: torch.Tensor, count: int, deviations: float = 5.0) -> bool:
    """Whether numbers below `count` come equally often."""
    seen = torch.bincount(values.flatten(), minlength=count).double()
    mean = values.numel() / count
    return len(seen) == count and bool(((seen - mean).abs() < deviations * mean**0.5).all())


WORKED: list[tuple[Task, int, str, str, str]] = [
    (
        Mqmtar(symbols=4, queries=Span(2, 2)),
        3,
        "c a d d d b b d a b b c ? d b d b ; =  b d b d .",
        """1 1 1 1 2 2 2 2 3 3 3 3 0 0 0 0 0 0 0  2 2 2 2 0
           1 2 3 4 1 2 3 4 1 2 3 4 0 1 2 1 2 1 0  3 4 3 4 0
           0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 2 2 3 0  1 1 2 2 0""",
        """1 1 1 1 2 2 2 2 3 3 3 3 0 0 0 0 0 0 0  2 2 2 0 0
           1 2 3 4 1 2 3 4 1 2 3 4 0 1 2 1 2 1 3  4 3 4 1 0
           0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 2 2 3 1  1 2 2 3 0""",
    ),
    (
        Mqmtar(symbols=4, queries=Span(2, 2), echo=True),
        3,
        "c a d d d b b d a b b c ? d b d b ; =  d b b d d b b d .",
        """1 1 1 1 2 2 2 2 3 3 3 3 0 0 0 0 0 0 0  0 0 2 2 0 0 2 2 0
           1 2 3 4 1 2 3 4 1 2 3 4 0 1 2 1 2 1 0  1 2 3 4 1 2 3 4 0
           0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 2 2 3 0  1 1 1 1 2 2 2 2 0""",
        """1 1 1 1 2 2 2 2 3 3 3 3 0 0 0 0 0 0 0  0 2 2 0 0 2 2 0 0
           1 2 3 4 1 2 3 4 1 2 3 4 0 1 2 1 2 1 1  2 3 4 1 2 3 4 1 0
           0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 2 2 3 1  1 1 1 2 2 2 2 3 0""",
    ),
    (
        AssociativeRecall(symbols=5),
        3,
        "b e c e d b ? c =  e",
        "1 1 2 2 3 3 0 0 0 0 | 1 2 1 2 1 2 0 1 0 2 | 0 0 0 0 0 0 0 1 0 1".replace("|", "\n"),
        "1 1 2 2 3 3 0 0 0 0 | 1 2 1 2 1 2 0 1 2 0 | 0 0 0 0 0 0 0 1 1 0".replace("|", "\n"),
    ),
]


@pytest.mark.parametrize(("task", "length", "words", "published", "aligned"), WORKED)
def test_worked_examples(task, length, words, published, aligned):
    sample = draw(task, [length])
    assert task.words(sample.tokens[0, : int(sample.num_tokens[0])].tolist()) == words.split()
    for form, ids in (("published", published), ("aligned", aligned)):
        expected = [[int(number) for number in level.split()] for level in ids.splitlines()]
        assert task.coupling(sample, form)[0, :, : int(sample.num_tokens[0])].tolist() == expected


def test_recall_agrees_with_a_search_through_the_pairs():
    for task in (Mqmtar(), Mqmtar(symbols=7, key_tokens=3, value_tokens=1), AssociativeRecall(queries=Span(5, 5))):
        k, size = task.key_tokens, task.key_tokens + task.value_tokens
        sample = draw(task, [1, 5, 60, 200] * 3)
        for (prompt, answer), length in zip(rows_of(task, sample), sample.length.tolist(), strict=True):
            pairs = [prompt[at : at + size] for at in range(0, size * length, size)]
            assert len({tuple(pair[:k]) for pair in pairs}) == length
            asked = prompt[size * length + 1 : -2]
            found = []
            for at in range(0, len(asked), k):
                (pair,) = [pair for pair in pairs if pair[:k] == asked[at : at + k]]
                found += pair[k:]
            assert answer == [*found, "."]


def test_pairs_and_queries_are_drawn_evenly():
    task = Mqmtar(symbols=3, queries=Span(1, 4))
    sample = draw(task, [5] * 9000)
    hidden = sample.hidden
    assert even(hidden["queries"] - 1, 4)
    assert even(hidden["asked"], 5)
    assert even(hidden["keys"], 9)
    assert even(hidden["values"], 3)
    orders = Counter(map(tuple, draw(task, [3] * 5040).hidden["keys"].tolist()))
    assert set(orders) <= set(itertools.permutations(range(9), 3))
    assert len(orders) > 490  # of 504, each ten times on average


def test_renewed_names_are_distinct_even_and_leave_the_kept_alone():
    draws = stream(1, "renew", torch.arange(6000))
    for num_names in (7, 1000):
        names = torch.tensor([[3, 0, 6, 1]]).repeat(6000, 1)
        keep = torch.tensor([[True, False, False, True]]).expand_as(names)
        again = renew(names, keep, num_names, draws, "names")
        assert (again[:, [0, 3]] == names[:, [0, 3]]).all()
        assert (again.sort(dim=1).values.diff(dim=1) > 0).all()
        fresh = again[:, 1:3]
        if num_names == 7:  # 0, 2, 4, 5 and 6 are free
            assert even((torch.tensor([0, -1, 1, -1, 2, 3, 4])[fresh]), 5)
        else:
            assert even(fresh // 100, 10)
    full = renew(torch.arange(5)[None].repeat(50, 1), torch.zeros(50, 5, dtype=torch.bool), 5, draws.rows(0, 50), "all")
    assert (full.sort(dim=1).values == torch.arange(5)).all()


def test_a_coupled_step_finds_its_query_by_number():
    """Aligned: whoever starts a query's first token has that query's number, and the end has the mark's."""
    task = Mqmtar(symbols=5, queries=Span(3, 3))
    sample = draw(task, [6])
    start = int(sample.prompt_tokens[0])
    query = task.coupling(sample, "aligned")[0, 2]
    assert query[[start - 1, start + 1, start + 3, start + 5]].tolist() == [1, 2, 3, 4]
    assert query[start - 2] == 4


def test_typed_prompts():
    task = Mqmtar(symbols=4)
    assert task.words(task.parse("abcd badd ? ba ab")) == list("abcdbadd?baab;=")
    question = task.prompt(task.parse("abcd badd ? ba ab"), 9)
    assert task.words(task.solve(question, 0)) == ["d", "d", "c", "d", "."]
    assert question.length.tolist() == [2]
    for bad in ("abc ? ab", "abcd ? a", "abcd ?", "abcd abdd ? ab", "abcd", "abcd ? ab ? ab", "ab;d ? ab", "? ab"):
        with pytest.raises(BadInput, match=r"mqmtar: (a prompt is pairs|no pair has the key a b)"):
            task.parse(bad)
    with pytest.raises(BadInput, match="no pair has the key c c"):
        task.parse("abcd ? cc")
    single = AssociativeRecall()
    assert single.words(single.solve(single.prompt(single.parse("a c b d ? b"), 1), 0)) == ["d"]
    with pytest.raises(BadInput, match="a prompt is pairs"):
        single.parse("a c b d ? b a")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"name": "mqmtar", "key_tokens": 0}, "key_tokens must be at least 1, got 0"),
        ({"name": "mqmtar", "value_tokens": 0}, "value_tokens must be at least 1, got 0"),
        ({"name": "mqmtar", "queries": 0}, "queries must be at least 1, got 0"),
        ({"name": "mqmtar", "symbols": 1}, "symbols must be at least 2, got 1"),
        ({"name": "mqmtar", "key_tokens": 9}, "at most 2..62 keys, got 9"),
    ],
)
def test_bad_settings_are_refused(settings, complaint):
    with pytest.raises(BadInput, match=complaint):
        build_part(Task, settings, "task")


@pytest.mark.parametrize(
    ("task", "length", "complaint"), [(Mqmtar(symbols=3), 10, "length must be in 1..9 .different keys., got 10")]
)
def test_impossible_lengths_are_refused(task, length, complaint):
    with pytest.raises(BadInput, match=complaint):
        task.check_length(length)


def test_a_long_sample_is_as_right_as_a_short_one():
    for task, length in ((Mqmtar(), 5000), (AssociativeRecall(symbols=5000), 4000)):
        sample = draw(task, [length])
        assert task.solve(sample, 0) == answer_of(sample, 0)
