"""Recall: worked examples, laws, and checks by another way."""

import itertools
from collections import Counter

import pytest
import torch
from helpers import answer_of, draw

from longreach.api import PointerConfig, Predicted, RunConfig, Sample, Span, Task, TrainConfig, TransformerConfig
from longreach.config import build_part
from longreach.errors import BadInput
from longreach.runs.check import check
from longreach.seeding import stream
from longreach.tasks import AssociativeRecall, Induction, Lego, Mqmtar, Needle, PointerValueRetrieval, VariableTracking
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
    (
        Needle(needles=Span(2, 2), value_tokens=2, symbols=3, num_keys=4),
        4,
        "c b B 0 0 ; c c C 7 9 ; ? C =  7 9 .",
        """0 0 1 1 1 1 0 0 2 2 2 2 0 0 0  2 2 0
           0 0 1 2 3 4 0 0 1 2 3 4 0 1 0  2 3 0""",
        """0 0 1 1 1 1 0 0 2 2 2 2 0 0 0  2 2 0
           0 0 1 2 3 4 0 0 1 2 3 4 0 1 2  3 4 0""",
    ),
    (
        Needle(needles=Span(2, 2), value_tokens=2, symbols=3, num_keys=4, echo=True),
        4,
        "c b B 0 0 ; c c C 7 9 ; ? C =  C 7 9 .",
        """0 0 1 1 1 1 0 0 2 2 2 2 0 0 0  0 2 2 0
           0 0 1 2 3 4 0 0 1 2 3 4 0 1 0  1 2 3 0""",
        """0 0 1 1 1 1 0 0 2 2 2 2 0 0 0  2 2 2 0
           0 0 1 2 3 4 0 0 1 2 3 4 0 1 1  2 3 4 0""",
    ),
    (
        VariableTracking(hops=Span(1, 1), num_names=6, num_values=9, symbols=3),
        4,
        "c F := 5 b C := 6 c c D := C B := F ; := B ; := D ? 5 =  F B .",
        """0 1 1 1 0 2 2 2 0 0 3 3 3 4 4 4 5 5 5 6 6 6 0 0 0  1 4 0
           0 1 2 3 0 1 2 3 0 0 1 2 3 1 2 3 1 2 3 1 2 3 0 0 0  1 1 0""",
        """0 1 1 1 0 2 2 2 0 0 3 3 3 4 4 4 5 5 5 6 6 6 0 0 0  4 5 0
           0 1 2 3 0 1 2 3 0 0 1 2 3 1 2 3 1 2 3 1 2 3 0 0 1  1 1 0""",
    ),
    (
        Lego(num_names=5),
        3,
        "c - b ; d - c ; b + 1 ; ? d =  b + c - d + .",
        """1 1 1 1 2 2 2 2 3 3 3 3 0 0 0  3 3 1 1 2 2 0
           1 2 3 4 1 2 3 4 1 2 3 4 0 0 0  1 2 1 2 1 2 0""",
        """1 1 1 1 2 2 2 2 3 3 3 3 0 0 0  3 1 1 2 2 0 0
           1 2 3 4 1 2 3 4 1 2 3 4 0 0 1  2 1 2 1 2 0 0""",
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


@pytest.mark.parametrize(
    "task",
    [
        Mqmtar(),
        Mqmtar(echo=True, queries=Span(1, 3)),
        Needle(),
        Needle(echo=True),
        VariableTracking(chains=Span(1, 3), hops=Span(0, 3)),
        Lego(),
    ],
)
def test_a_pointer_reaches_the_ids(task):
    """Every ID that a model must predict stands in the prompt, and the prompt's own IDs give nothing away."""
    model = TransformerConfig(layers=1, width=32, heads=1, position_head=PointerConfig())
    train = TrainConfig(lengths=Span(2, 8))
    check(RunConfig(task=task, ids=Predicted(max_id=60), model=model, train=train))


def test_typed_prompts():
    task = Mqmtar(symbols=4)
    assert task.words(task.parse("abcd badd ? ba ab")) == list("abcdbadd?baab;=")
    question = task.prompt_batch(task.parse("abcd badd ? ba ab"), 9)
    assert task.words(task.solve(question, 0)) == ["d", "d", "c", "d", "."]
    assert question.length.tolist() == [2]
    for bad in ("abc ? ab", "abcd ? a", "abcd ?", "abcd abdd ? ab", "abcd", "abcd ? ab ? ab", "ab;d ? ab", "? ab"):
        with pytest.raises(BadInput, match=r"mqmtar: (a prompt is pairs|no pair has the key a b)"):
            task.parse(bad)
    with pytest.raises(BadInput, match="no pair has the key c c"):
        task.parse("abcd ? cc")
    single = AssociativeRecall()
    assert single.words(single.solve(single.prompt_batch(single.parse("a c b d ? b"), 1), 0)) == ["d"]
    with pytest.raises(BadInput, match="a prompt is pairs"):
        single.parse("a c b d ? b a")


def test_induction_symbols_and_places_are_even_and_the_last_stands_once_before():
    task = Induction(symbols=5)
    sample = draw(task, [9] * 7000)
    assert even(sample.hidden["place"], 7)
    assert even(sample.tokens[:, 8] - 1, 5)
    assert even((sample.tokens[:, 9] - sample.tokens[:, 8] - 1) % 5, 4)  # the answer: any other than the last
    for prompt, (answer,) in rows_of(task, sample.rows(0, 300)):
        *before, last = prompt
        (place,) = [number for number, symbol in enumerate(before) if symbol == last]
        assert before[place + 1] == answer != last


def test_needles_stand_anywhere_and_filler_is_even():
    task = Needle(needles=Span(1, 3), value_tokens=2, symbols=4)
    sample = draw(task, [5] * 9000)
    assert even(sample.hidden["needles"] - 1, 3)
    one = sample.hidden["needles"] == 1
    assert even(sample.hidden["start"][one, 0], 6)
    is_filler = (sample.tokens >= 15) & (sample.tokens < 19)
    assert (is_filler.sum(1) == 5).all()
    assert even(sample.tokens[is_filler] - 15, 4)
    for (prompt, answer), needles in zip(rows_of(task, sample.rows(0, 300)), sample.hidden["needles"], strict=False):
        keys = [number for number, word in enumerate(prompt[:-3]) if word.isupper()]
        assert len(keys) == len({prompt[at] for at in keys}) == needles
        (at,) = [at for at in keys if prompt[at] == prompt[-2]]
        assert [*prompt[at + 1 : at + 3], "."] == answer
        assert all(prompt[at + 3] == ";" for at in keys)
    three = sample.hidden["needles"] == 3
    assert even(sample.hidden["asked"][three], 3)


def test_chains_keep_their_order_and_are_mixed_evenly():
    task = VariableTracking(hops=Span(1, 1), symbols=1)
    sample = draw(task, [3] * 6000)
    shapes: Counter[str] = Counter()
    for prompt, answer in rows_of(task, sample):
        statements = [prompt[at - 1 : at + 2] for at, word in enumerate(prompt) if word == ":="]
        values: dict[str, str] = {}
        for left, _, right in statements:
            assert right.isdigit() or right in values
            values[left] = values.get(right, right)
        assert answer == [*(name for name in values if values[name] == prompt[-2] and name != ";"), "."]
        shapes["".join("a" if right in (prompt[-2], *answer) else "b" for _, _, right in statements)] += 1
    assert set(shapes) == {"".join(shape) for shape in itertools.permutations("aaabbb")}
    assert all(abs(count - 300) < 5 * 300**0.5 for count in shapes.values())  # 20 orders


def test_lego_agrees_with_a_walk_from_the_one():
    task = Lego()
    sample = draw(task, [1, 2, 9, 60] * 20)
    for prompt, answer in rows_of(task, sample):
        clauses = {prompt[at + 2]: prompt[at : at + 2] for at in range(0, len(prompt) - 3, 4)}
        at, sign, expected = "1", 1, []
        while at in clauses:
            at, how = clauses[at]
            sign *= 1 if how == "+" else -1
            expected += [at, "+" if sign == 1 else "-"]
        assert answer == [*expected, "."]
        assert prompt[-2] == at
        assert len(expected) == 2 * len(clauses)
    end = draw(Lego(scratchpad=False), [5] * 4000)
    assert even(end.tokens[:, -1] - 4, 2)
    orders = Counter(map(tuple, draw(Lego(), [3] * 6000).hidden["place"].tolist()))
    assert set(orders) == set(itertools.permutations(range(3)))
    assert all(abs(count - 1000) < 160 for count in orders.values())


def test_pointers_point_evenly_and_windows_are_added():
    task = PointerValueRetrieval(window=3, pointer_digits=2)
    sample = draw(task, [12] * 5000)
    assert even(sample.hidden["pointer"], 10)
    for prompt, (answer,) in rows_of(task, sample.rows(0, 300)):
        pointer = 10 * int(prompt[0]) + int(prompt[1])
        assert int(answer) == sum(int(digit) for digit in prompt[3:15][pointer:][:3]) % 10
    long = draw(PointerValueRetrieval(), [9999] * 2)
    assert [PointerValueRetrieval().solve(long, row) for row in (0, 1)] == [answer_of(long, row) for row in (0, 1)]


def answer(task: Task, text: str) -> str:
    return " ".join(task.words(task.solve(task.prompt_batch(task.parse(text), 99), 0)))


def test_more_typed_prompts():
    assert answer(Induction(), "c a b d b a") == "b"
    assert answer(Needle(value_tokens=2), "c A 40 ; ab B 7 1 ; b ? A") == "4 0 ."
    assert answer(Needle(value_tokens=2, echo=True), "B 71 ; ? B") == "B 7 1 ."
    assert answer(VariableTracking(), "b A := 7 c B := A ; := B ? 7") == "A B ."
    assert answer(Lego(), "b - a ; a + 1 ; c - b ; ? c") == "a + b - c + ."
    assert answer(Lego(), "b - a ; a + 1 ; c - b ; ? b") == "a + b - ."
    assert answer(Lego(scratchpad=False), "b - a ; a + 1 ; ? b") == "-"
    assert answer(PointerValueRetrieval(), "0002:71495") == "4"
    assert answer(PointerValueRetrieval(window=2), "0 0 0 2 : 7 1 4 9 5 =") == "3"
    short = Needle(value_tokens=2)
    assert short.prompt_batch(short.parse("c A 40 ; a a B 7 1 ; b ? A"), 3).length.tolist() == [4]


@pytest.mark.parametrize(
    ("task", "text", "complaint"),
    [
        (Induction(), "a b c", "stands once before"),
        (Induction(), "a b a a", "stands once before"),
        (Induction(), "a b c c", "stands once before"),
        (Induction(), "a", "stands once before"),
        (Needle(value_tokens=2), "A 4 ; ? A", "a prompt is filler"),
        (Needle(value_tokens=2), "A 4 0 a ? A", "a prompt is filler"),
        (Needle(value_tokens=2), "A 40 ; A 41 ; ? A", "a prompt is filler"),
        (Needle(value_tokens=2), "A 40 ; a", "a prompt is filler"),
        (Needle(value_tokens=2), "A 40 ; ? B", "no needle has the key B"),
        (VariableTracking(), "A := 7 ; := A ? A", "a prompt is filler"),
        (VariableTracking(), "A := := 7 ? 7", "a prompt is filler"),
        (VariableTracking(), "B := A A := 7 ; := B ? 7", "before A is known"),
        (VariableTracking(), "A := 7 A := 8 ; := A ? 7", "too late"),
        (VariableTracking(), "A := 7 ? 7", "no chain with the value 7 has an end"),
        (Lego(), "a + 1 ; ? b", "do not lead from b to 1"),
        (Lego(), "a + b ; b - a ; ? b", "do not lead from b to 1"),
        (Lego(), "a + 1 ; a - 1 ; ? a", "a prompt is clauses"),
        (Lego(), "a 1 ; ? a", "a prompt is clauses"),
        (Lego(), "? a", "a prompt is clauses"),
        (Lego(), "a", "a prompt is clauses"),
        (PointerValueRetrieval(), "02 : 7149", "a number of 4 digits"),
        (PointerValueRetrieval(), "0002", "a number of 4 digits"),
        (PointerValueRetrieval(), "0004 : 7149", "0004 points beyond the 4 digits"),
    ],
)
def test_what_is_no_prompt_is_refused(task, text, complaint):
    with pytest.raises(BadInput, match=complaint):
        task.parse(text)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"name": "mqmtar", "key_tokens": 0}, "key_tokens must be at least 1, got 0"),
        ({"name": "mqmtar", "value_tokens": 0}, "value_tokens must be at least 1, got 0"),
        ({"name": "mqmtar", "queries": 0}, "queries must be at least 1, got 0"),
        ({"name": "mqmtar", "symbols": 1}, "symbols must be at least 2, got 1"),
        ({"name": "mqmtar", "key_tokens": 9}, "at most 2..62 keys, got 9"),
        ({"name": "induction", "symbols": 2}, "symbols must be at least 3, got 2"),
        ({"name": "needle", "needles": "0..3"}, "needles must be at least 1, got 0..3"),
        ({"name": "needle", "value_tokens": 0}, "value_tokens must be at least 1, got 0"),
        ({"name": "needle", "num_keys": 3}, "num_keys must be at least 4 .needles., got 3"),
        ({"name": "variable_tracking", "chains": 0}, "chains must be at least 1, got 0"),
        ({"name": "variable_tracking", "num_names": 7}, "num_names must be at least 8, got 7"),
        ({"name": "variable_tracking", "num_values": 1}, "num_values must be at least 2 .chains., got 1"),
        ({"name": "lego", "num_names": 1}, "num_names must be at least 2, got 1"),
        ({"name": "pointer_value_retrieval", "window": 0}, "window must be at least 1, got 0"),
        ({"name": "pointer_value_retrieval", "pointer_digits": 10}, "pointer_digits must be in 1..9, got 10"),
    ],
)
def test_bad_settings_are_refused(settings, complaint):
    with pytest.raises(BadInput, match=complaint):
        build_part(Task, settings, "task")


@pytest.mark.parametrize(
    ("task", "length", "complaint"),
    [
        (Mqmtar(symbols=3), 10, "length must be in 1..9 .different keys., got 10"),
        (Induction(), 2, "at least 3, got 2"),
        (Needle(), 0, "at least 1, got 0"),
        (VariableTracking(), 0, "at least 1, got 0"),
        (Lego(num_names=9), 10, "in 1..9 .num_names., got 10"),
        (PointerValueRetrieval(window=3, pointer_digits=1), 13, "in 3..12 .window, pointer_digits., got 13"),
    ],
)
def test_impossible_lengths_are_refused(task, length, complaint):
    with pytest.raises(BadInput, match=complaint):
        task.check_length(length)


def test_a_long_sample_is_as_right_as_a_short_one():
    for task, length in (
        (Mqmtar(), 5000),
        (AssociativeRecall(symbols=5000), 4000),
        (Induction(), 5000),
        (Needle(), 5000),
        (VariableTracking(chains=Span(5, 5), hops=Span(9, 9)), 5000),
        (Lego(num_names=2000), 2000),
    ):
        sample = draw(task, [length])
        assert task.solve(sample, 0) == answer_of(sample, 0)
