"""Tasks on numbers, grids and counts."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from catalogue import label
from helpers import answer_of, draw

from longreach.api import Addition, Coupled, IndexHints, ParityScratchpad, Sample, Span, Task, stream
from longreach.config import build_part
from longreach.errors import BadInput
from longreach.tasks import (
    BinaryAddition,
    BinaryMultiplication,
    BucketSort,
    ComputeSqrt,
    Count,
    Counting,
    Majority,
    Minesweeper,
    MultiAddition,
    Multiplication,
    Parity,
    PlainAddition,
    Sort,
    Subtraction,
)
from longreach.tasks.calculation import settle


def asked(task: Task, text: str) -> Sample:
    """A typed prompt with its answer."""
    tokens = task.parse(text)
    answer = task.solve(task.prompt_batch(tokens, 1), 0)
    sample = task.prompt_batch(tokens, len(answer))
    sample.tokens[0, len(tokens) :] = torch.tensor(answer)
    return sample


WORKED: list[tuple[Task, str, str, list[str], list[str]]] = [
    (
        Addition(carry="hidden", order="plain"),
        "37 + 48",
        "; 3 7 + 4 8 =  0 8 5 .",
        ["4 3 2 1 3 2 5  4 3 2 0"],
        ["3 2 1 0 2 1 3  2 1 0 0"],
    ),
    (PlainAddition(), "37 + 8", "; 3 7 + 8 =  5' 4 .", ["4 3 2 1 2 1  2 3 0"], ["3 2 1 2 1 1  2 3 0"]),
    (
        PlainAddition(),
        "7 + 98",
        "; 7 + 9 8 =  5' 0' 1 .",
        ["3 2 1 3 2 1  2 3 4 0"],
        ["2 1 3 2 1 1  2 3 0 0"],
    ),
    (Subtraction(), "53 - 28", "; 5 3 - 2 8 =  5' 2 .", ["4 3 2 1 3 2 1  2 3 0"], ["3 2 1 0 2 1 1  2 3 0"]),
    (
        MultiAddition(),
        "37 + 48 + 11",
        "; 0 3 7 + 0 4 8 + 0 1 1 =  6 9 0 .",
        ["5 4 3 2 1 4 3 2 1 4 3 2 1  2 3 4 0"],
        ["5 4 3 2 1 4 3 2 1 4 3 2 2  3 4 5 0"],
    ),
    (
        MultiAddition(scratchpad=True),
        "37 + 48",
        "; 0 3 7 + 0 4 8 =  0 0 0 > 7 3 0 > 5 8 0 .",
        ["5 4 3 2 1 4 3 2 1  2 3 4 1 2 3 4 1 2 3 4 0", "1 1 1 1 1 2 2 2 1  1 1 1 2 2 2 2 3 3 3 3 0"],
        ["5 4 3 2 1 4 3 2 2  3 4 5 2 3 4 5 2 3 4 5 0", "1 1 1 1 1 2 2 2 0  0 0 0 1 1 1 1 2 2 2 2 0"],
    ),
]


WORKED += [
    (
        ParityScratchpad(order="reversed"),
        "1011",
        "; 1 0 1 1 =  1 0 0 1 .",
        ["1 2 3 4 5 6  5 4 3 2 0"],
        ["1 2 3 4 5 5  4 3 2 1 0"],
    ),
    (Parity(), "1011", "1 0 1 1 =  1", ["1 1 1 1 2  1"], ["1 1 1 1 1  0"]),
    (
        Minesweeper(rows=2),
        "*-- -*-",
        "* - - - * - ; =  * 2 1 2 * 1 .",
        ["2 3 4 2 3 4 2 1  2 3 4 2 3 4 0", "2 2 2 3 3 3 4 1  2 2 2 3 3 3 0"],
        ["1 2 3 1 2 3 1 1  2 3 1 2 3 1 0", "1 1 1 2 2 2 3 1  1 1 2 2 2 3 0"],
    ),
    (
        Multiplication(),
        "137 * 12",
        "; 1 3 7 * 1 2 =  4 4 6 1 0 .",
        ["2 3 4 5 6 4 5 6  5 4 3 2 1 0"],
        ["1 2 3 4 5 3 4 4  3 2 1 1 1 0"],
    ),
    (
        Multiplication(scratchpad=True),
        "37 * 12",
        "; 3 7 * 1 2 =  4 7 0 + 7 3 0 = 4 7 0 0 > 4 4 4 0 .",
        [
            "4 3 2 0 0 0 1  2 3 4 1 2 3 4 0 0 0 0 0 0 0 0 0 0 0",
            "0 0 0 0 2 1 1  1 1 1 2 2 2 2 1 1 1 1 1 2 2 2 2 2 0",
            "0 0 0 0 0 0 1  2 3 4 2 3 4 5 1 2 3 4 5 1 2 3 4 5 0",
        ],
        [
            "3 2 1 0 0 0 1  2 3 0 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0",
            "0 0 0 3 2 1 1  1 1 2 2 2 2 3 1 1 1 1 2 2 2 2 2 3 0",
            "0 0 0 0 0 0 1  2 3 4 2 3 4 5 2 3 4 5 6 2 3 4 5 6 0",
        ],
    ),
]


WORKED += [
    (
        BinaryAddition(),
        "001 + 01101",
        "0 0 1 + 0 1 1 0 1 ; =  0 1 0 1 1 .",
        ["1 2 3 4 1 2 3 4 5 6 0  1 2 3 4 5 0"],
        ["1 2 3 4 1 2 3 4 5 6 1  2 3 4 5 6 0"],
    ),
    (
        BinaryMultiplication(),
        "001 * 01101",
        "0 0 1 * 0 1 1 0 1 ; =  0 0 0 1 1 0 1 .",
        ["1 2 3 4 1 2 3 4 5 6 0  1 2 3 4 5 6 7 0"],
        ["1 2 3 4 1 2 3 4 5 6 1  2 3 4 5 6 6 6 0"],
    ),
    (
        ComputeSqrt(),
        "0100101",
        "0 1 0 0 1 0 1 ; =  0 1 1 0 .",
        ["1 2 2 3 3 4 4 5 0  1 2 3 4 0"],
        ["1 2 2 3 3 4 4 5 1  2 3 4 5 0"],
    ),
    (
        Addition(operand_order="reversed"),
        "37 + 48",
        "7 3 + 8 4 ; =  5' 8 0 .",
        ["2 3 1 2 3 4 1  2 3 4 0"],
        ["1 2 0 1 2 3 1  2 3 0 0"],
    ),
    (
        Addition(carry="hidden", order="plain", operand_order="reversed"),
        "37 + 48",
        "7 3 + 8 4 ; =  0 8 5 .",
        ["2 3 1 2 3 4 5  4 3 2 0"],
        ["1 2 0 1 2 3 3  2 1 0 0"],
    ),
    (
        PlainAddition(operand_order="reversed"),
        "7 + 98",
        "7 + 8 9 ; =  5' 0' 1 .",
        ["2 1 2 3 4 1  2 3 4 0"],
        ["1 2 1 2 3 1  2 3 0 0"],
    ),
    (
        Subtraction(operand_order="reversed"),
        "53 - 28",
        "3 5 - 8 2 ; =  5' 2 .",
        ["2 3 1 2 3 4 1  2 3 0"],
        ["1 2 0 1 2 3 1  2 3 0"],
    ),
    (
        MultiAddition(scratchpad=True, operand_order="reversed"),
        "37 + 48",
        "7 3 0 + 8 4 0 ; =  0 0 0 > 7 3 0 > 5 8 0 .",
        ["2 3 4 1 2 3 4 5 1  2 3 4 1 2 3 4 1 2 3 4 0", "1 1 1 2 2 2 2 1 1  1 1 1 2 2 2 2 3 3 3 3 0"],
        ["2 3 4 1 2 3 4 5 2  3 4 5 2 3 4 5 2 3 4 5 0", "1 1 1 1 2 2 2 1 0  0 0 0 1 1 1 1 2 2 2 2 0"],
    ),
    (
        Multiplication(operand_order="reversed"),
        "137 * 12",
        "7 3 1 * 2 1 ; =  4 4 6 1 0 .",
        ["5 4 3 6 5 4 2 6  5 4 3 2 1 0"],
        ["4 3 2 5 4 3 1 4  3 2 1 1 1 0"],
    ),
]


@pytest.mark.parametrize(("task", "text", "words", "published", "aligned"), WORKED, ids=label)
def test_worked_examples(task, text, words, published, aligned):
    sample = asked(task, text)
    assert task.words(sample.tokens[0].tolist()) == words.split()
    for form, ids in (("published", published), ("aligned", aligned)):
        assert task.coupling(sample, form)[0].tolist() == [[int(i) for i in level.split()] for level in ids]


@pytest.mark.parametrize("base", [2, 10])
def test_carries_settle_whatever_the_columns_hold(base):
    for most in (9, 18, 19, 90, 1000):
        columns = torch.randint(0, most + 1, (50, 12), generator=torch.Generator().manual_seed(0))
        columns[:10] = most
        columns[10:20] = columns[10:20].clamp(max=9) // 9 * 9 + (torch.arange(12) == 0)  # long chains of nines
        for row, digits in zip(columns.tolist(), settle(columns, most, base).tolist(), strict=True):
            total = sum(number * base**weight for weight, number in enumerate(row))
            assert digits == [total // base**weight % base for weight in range(12)]


def numbers(task: Task, sample: Sample, row: int, sign: str) -> tuple[list[str], list[str]]:
    """The numbers of a prompt, and the answer without its stop."""
    words = task.words(sample.tokens[row, : int(sample.num_tokens[row])].tolist())
    size = int(sample.prompt_tokens[row])
    assert (words[0], words[size - 1], words[-1]) == (";", "=", ".")
    return "".join(words[1 : size - 1]).split(sign), words[size:-1]


def test_plain_sums_begin_with_the_most_significant_digit():
    task = Addition(carry="hidden", order="plain")
    sample = draw(task, [1, 2, 3, 19, 60] * 50)
    for row, length in enumerate(sample.length.tolist()):
        (first, second), answer = numbers(task, sample, row, "+")
        assert len(first) == len(second) == length
        assert "".join(answer) == str(int(first) + int(second)).zfill(length + 1)


@pytest.mark.parametrize("order", ["reversed", "plain"])
def test_sums_without_padding_have_no_zero_in_front(order):
    task = PlainAddition(carry="hidden", order=order)
    sample = draw(task, [1, 2, 3, 19] * 400)
    sizes = []
    for row, length in enumerate(sample.length.tolist()):
        (first, second), answer = numbers(task, sample, row, "+")
        assert max(len(first), len(second)) == length
        assert "".join(answer if order == "plain" else reversed(answer)) == str(int(first) + int(second))
        assert all(number == str(int(number)) for number in (first, second))
        if length == 3:
            sizes.append((len(first), len(second)))
    counts = {size: sizes.count(size) for size in set(sizes)}
    assert set(counts) == {(3, 3), (3, 2), (2, 3), (3, 1), (1, 3)}
    assert abs(counts[3, 3] - 400 / 3) < 40
    assert all(abs(count - 400 / 6) < 33 for size, count in counts.items() if size != (3, 3))


TURNED = [
    Addition(),
    PlainAddition(),
    Subtraction(),
    MultiAddition(scratchpad=True),
    Multiplication(factor_digits=Span(1, 3)),
    Multiplication(factor_digits=None, scratchpad=True),
]


@pytest.mark.parametrize("task", TURNED, ids=label)
def test_reversed_operands_are_the_plain_ones_turned_round(task):
    """Digits, needs and IDs change places together; the answer stays."""
    other = replace(task, operand_order="reversed")
    plain, turned = draw(task, [1, 2, 5, 9] * 5), draw(other, [1, 2, 5, 9] * 5)
    assert torch.equal(plain.prompt_tokens, turned.prompt_tokens)
    sign = task.vocabulary[2]
    for row in range(20):
        size = int(plain.prompt_tokens[row])
        numbers = "".join(task.words(plain.tokens[row, 1 : size - 1].tolist())).split(sign)
        words = "".join(other.words(turned.tokens[row, :size].tolist()))
        assert words == sign.join(number[::-1] for number in numbers) + ";="
        assert answer_of(plain, row) == answer_of(turned, row)
    for ids, ours in (
        (task.coupling(plain, "aligned"), other.coupling(turned, "aligned")),
        (task.hint_ids(plain), other.hint_ids(turned)),
        (task.depends_on(plain).sum(2)[:, None], other.depends_on(turned).sum(2)[:, None]),
    ):
        step = torch.arange(ids.shape[2]) >= plain.prompt_tokens[:, None] - 1
        assert torch.equal(ids * step[:, None], ours * step[:, None])  # from the equals sign on
        assert torch.equal(ids.sort(2).values, ours.sort(2).values)


def test_the_end_of_a_number_is_read_from_the_sign_beside_it():
    for order, first, second in (("plain", ";", "+"), ("reversed", "+", ";")):
        task = PlainAddition(operand_order=order)
        sample = asked(task, "7 + 98")
        words, needs = task.words(sample.tokens[0].tolist()), task.depends_on(sample)[0]
        read = [[words[place] for place in row.nonzero()[:, 0].tolist()] for row in needs[sample.answer[0]]]
        assert [sorted(some) for some in read[:2]] == [["7", "8"], sorted([first, "9", "5'"])]
        assert sorted(read[2]) == sorted([first, second, "0'"])


@pytest.mark.parametrize("task", [Addition(), PlainAddition(), Subtraction()], ids=label)
def test_signs_move_with_the_digits_only_where_they_are_published(task):
    """The aligned form keeps its IDs, and hints their tokens: signs in `index_hints` still have #0."""
    sample = draw(task, [3] * 40)
    policy = Coupled(form="published", relabelling="offset", max_id=50)
    moved = policy.training_ids(task, sample, stream(0, "offsets", torch.arange(40)))[:, 0]
    equals = moved[torch.arange(40), sample.prompt_tokens - 1]
    assert len(equals.unique()) > 10
    lowest = moved.masked_fill(moved == 0, 99).amin(1)
    assert torch.equal(equals, lowest)
    assert torch.equal(moved[sample.tokens == 2], lowest)
    if not isinstance(task, PlainAddition):  # where a number may end early, the sign in front stands for its end
        assert not task.hint_ids(sample)[:, 0][(sample.tokens == 2) | (sample.tokens == 3)].any()
    hinted = IndexHints(of=task, num_hints=20)
    words = hinted.words(hinted.parse("53 - 28" if isinstance(task, Subtraction) else "53 + 28"))
    expected = (
        "#3 ; #2 5 #1 3 #3 + #2 2 #1 8 #0 ="
        if isinstance(task, PlainAddition)
        else (f"#3 ; #2 5 #1 3 #0 {task.vocabulary[2]} #2 2 #1 8 #0 =")
    )
    assert " ".join(words) == expected


def test_primes_mark_the_digits_that_carry_or_borrow():
    for task, sign in ((PlainAddition(), "+"), (Subtraction(), "-")):
        sample = draw(task, [1, 2, 5, 19] * 50)
        for row in range(200):
            (first, second), answer = numbers(task, sample, row, sign)
            for i, digit in enumerate(answer, start=1):
                low = int(first[-i:]), int(second[-i:])
                moves = sum(low) >= 10**i if sign == "+" else low[0] < low[1]
                assert digit.endswith("'") == (moves and i <= int(sample.length[row]))


@pytest.mark.parametrize("borrow", ["written", "hidden"])
def test_subtraction_subtracts(borrow):
    task = Subtraction(borrow=borrow)
    sample = draw(task, [1, 2, 3, 19, 60] * 100)
    for row, length in enumerate(sample.length.tolist()):
        (first, second), answer = numbers(task, sample, row, "-")
        assert len(first) == len(second) == len(answer) == length
        assert int("".join(digit[0] for digit in reversed(answer))) == int(first) - int(second) >= 0
    one = draw(task, [1] * 20_000).tokens
    counts = torch.bincount((one[:, 1] - 5) * 10 + one[:, 3] - 5, minlength=100).view(10, 10)
    assert not counts.triu(1).any()
    assert abs(counts.diagonal().double().mean() - 200) < 15  # a pair and its mirror image are one
    assert abs(counts.tril(-1).sum() / 45 - 400) < 10


@pytest.mark.parametrize("operands", [Span(2, 4), Span(9, 12), Span(99, 102)], ids=str)
@pytest.mark.parametrize("scratchpad", [False, True])
def test_many_numbers_add_up(operands, scratchpad):
    task = MultiAddition(operands=operands, scratchpad=scratchpad)
    sample = draw(task, [1, 2, 3, 4, 19] * 16)
    counts = set()
    for row, length in enumerate(sample.length.tolist()):
        given, answer = numbers(task, sample, row, "+")
        counts.add(len(given))
        width = len(str(len(given) * (10**length - 1)))
        assert all(len(number) == width and int(number) < 10**length for number in given)
        sums = [sum(map(int, given[:count])) for count in range(len(given) + 1)]
        written = [str(total).zfill(width)[::-1] for total in (sums if scratchpad else sums[-1:])]
        assert "".join(answer) == ">".join(written)
    assert counts == set(range(operands.low, operands.high + 1))


def test_operands_and_their_number_are_uniform():
    sample = draw(MultiAddition(operands=Span(2, 3)), [1] * 9000)
    three = sample.prompt_tokens == 10
    assert abs(three.sum() - 4500) < 220
    for place in (2, 5, 8):  # behind the zero in front
        counts = torch.bincount(sample.tokens[three, place] - 5, minlength=10)
        assert (counts - counts.sum() / 10).abs().max() < 100


@pytest.mark.parametrize("factor_digits", [Span(1, 5), None], ids=str)
@pytest.mark.parametrize("scratchpad", [False, True])
def test_products_are_products(factor_digits, scratchpad):
    task = Multiplication(factor_digits=factor_digits, scratchpad=scratchpad)
    sample = draw(task, [1, 2, 3, 6, 15] * 20)
    sizes = set()
    for row, n in enumerate(sample.length.tolist()):
        (first, second), answer = numbers(task, sample, row, "*")
        m = len(second)
        sizes.add(m)
        assert len(first) == n
        parts = [str(int(first) * int(digit)).zfill(n + 1)[::-1] for digit in reversed(second)]
        sums = [str(int(first) * int(second[-count:])).zfill(n + m)[::-1] for count in range(1, m + 1)]
        assert "".join(answer) == (f"{'+'.join(parts)}={'>'.join(sums)}" if scratchpad else sums[-1])
    assert sizes == ({1, 2, 3, 6, 15} if factor_digits is None else {1, 2, 3, 4, 5})


def test_a_long_product_is_as_right_as_a_short_one():
    task = Multiplication(factor_digits=None)
    sample = draw(task, [1500])
    assert task.solve(sample, 0) == answer_of(sample, 0)


def bits_of(task: Task, sample: Sample, row: int) -> tuple[list[str], str]:
    """The binary numbers of a prompt, and the answer without its stop."""
    words = task.words(sample.tokens[row, : int(sample.num_tokens[row])].tolist())
    size = int(sample.prompt_tokens[row])
    assert (words[size - 2], words[size - 1], words[-1]) == (";", "=", ".")
    return "".join(words[: size - 2]).replace("*", "+").split("+"), "".join(words[size:-1])


@pytest.mark.parametrize("task", [BinaryAddition(), BinaryMultiplication()], ids=label)
def test_binary_sums_and_products_are_those_of_python(task):
    lengths = [*range(1, 60), 250, 2000]
    sample = draw(task, lengths)
    for row, length in enumerate(lengths):
        given, answer = bits_of(task, sample, row)
        assert sum(map(len, given)) + len(given) - 1 == length
        values = [int(bits[::-1], 2) for bits in given]
        if length > 2:
            first, second = values
            assert min(values) > 0
            assert answer == f"{first + second if isinstance(task, BinaryAddition) else first * second:b}"[::-1]
        else:  # one number, as in the authors' code
            assert values[0] < 2**length - 1
            assert answer == (f"{values[0]:b}"[::-1] if isinstance(task, BinaryAddition) else "0" * (length - 1))


def test_binary_numbers_are_uniform_among_the_positive_ones():
    task = BinaryAddition()
    sample = draw(task, [6] * 9000)
    drawn = [bits_of(task, sample, row)[0] for row in range(9000)]
    sizes = torch.bincount(torch.tensor([len(first) for first, _ in drawn]), minlength=5)
    assert (sizes[1:] - 2250).abs().max() < 220
    values = torch.tensor([[int(number[::-1], 2) for number in pair] for pair in drawn if len(pair[0]) == 2])
    for number, count in ((0, 3), (1, 7)):
        found = torch.bincount(values[:, number], minlength=count + 1)
        assert found[0] == 0
        assert (found - len(values) / count).abs()[1:].max() < 5 * (len(values) / count) ** 0.5
    short = draw(task, [2] * 3000)
    found = torch.bincount(short.tokens[:, 0] - 5 + 2 * (short.tokens[:, 1] - 5), minlength=4)
    assert found[3] == 0
    assert (found[:3] - 1000).abs().max() < 150
    for length in (29, 30, 31, 32, 64):  # up to 30 bits a number is drawn as one integer
        bits = draw(ComputeSqrt(), [length] * 4000).tokens[:, :length] - 4
        assert (bits.sum(0) - 2000).abs().max() < 180
        assert bits.any(1).all()


def test_roots_are_those_of_python():
    task = ComputeSqrt()
    lengths = [*range(1, 60), 250, 1001]
    sample = draw(task, lengths)
    for row, length in enumerate(lengths):
        (number,), answer = bits_of(task, sample, row)
        assert len(number) == length
        assert len(answer) == math.ceil(length / 2)
        assert int(answer, 2) == math.isqrt(int(number, 2)) > 0
    every = draw(task, [6] * 3000)
    assert len({tuple(row) for row in every.tokens[:, :6].tolist()}) == 63


def test_a_bit_of_a_sum_needs_higher_bits_only_where_the_sum_may_end():
    task = BinaryAddition()
    sample = asked(task, "0101 + 0110")  # 10 + 6 = 16: zeros and carries up to the end
    counts = task.depends_on(sample)[0].sum(1)[sample.answer[0]].tolist()
    assert counts == [8, 9, 7, 5, 5, 3]
    sample = asked(task, "1010 + 0100")  # 5 + 2 = 7, then zeros that are not written
    counts = task.depends_on(sample)[0].sum(1)[sample.answer[0]].tolist()
    assert counts == [2, 5, 5, 5]


SPARSE = [
    Addition(),
    Addition(carry="hidden"),
    Addition(carry="hidden", order="plain"),
    Subtraction(),
    Subtraction(borrow="hidden"),
    ParityScratchpad(order="reversed"),
    Addition(operand_order="reversed"),
    Subtraction(borrow="hidden", operand_order="reversed"),
    MultiAddition(operands=Span(2, 2)),
    MultiAddition(operands=Span(3, 3), scratchpad=True),
    MultiAddition(operands=Span(3, 3), scratchpad=True, operand_order="reversed"),
    Multiplication(factor_digits=Span(2, 2)),
    Multiplication(factor_digits=Span(2, 2), operand_order="reversed"),
    Multiplication(factor_digits=Span(2, 2), scratchpad=True),
    Multiplication(factor_digits=Span(3, 3), scratchpad=True),
    Multiplication(factor_digits=Span(2, 2), scratchpad=True, operand_order="reversed"),
]


@pytest.mark.parametrize("task", SPARSE, ids=label)
def test_answers_can_be_worked_out_from_what_is_listed(task):
    """Whatever stands elsewhere: samples that agree on what a token reads agree on the token."""
    sample = draw(task, [2] * 10_000)
    needs = task.depends_on(sample)
    assert (needs == needs[0]).all()
    agreed = 0
    for step in sample.answer[0].nonzero()[:, 0].tolist():
        read, token = sample.tokens[:, needs[0, step]].tolist(), sample.tokens[:, step].tolist()
        seen: dict[tuple[int, ...], int] = {}
        for key, value in zip(map(tuple, read), token, strict=True):
            assert seen.setdefault(key, value) == value
        agreed += len(read) - len(seen)
    assert agreed > 10_000


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [
        (Sort(), "c z aa b", "b c z aa ."),
        (BucketSort(), "c a b a a", "a a a b c ."),
        (Counting(), "98 101", "98 99 100 101 ."),
        (Counting(), "7 7 =", "7 ."),
        (Count(), "a b a c ? a", "2 ."),
        (Count(), " ".join("a" * 112) + " ? a", "1 1 2 ."),
        (Count(), "a b ? c =", "0 ."),
        (Majority(), "a b c b", "b"),
        (Majority(), "c b b c", "c"),
        (Minesweeper(), "** **", "* * * * ."),
        (Minesweeper(), "--- -*- ---", "1 1 1 1 * 1 1 1 1 ."),
    ],
    ids=str,
)
def test_answers_to_typed_prompts(task, text, answer):
    sample = asked(task, text)
    assert task.words(sample.tokens[0][sample.answer[0]].tolist()) == answer.split()


def test_square_grids_are_counted_cell_by_cell():
    task = Minesweeper()
    sample = draw(task, [1, 2, 3, 7] * 25)
    shares = []
    for row, size in enumerate(sample.length.tolist()):
        words = task.words(sample.tokens[row, : int(sample.num_tokens[row])].tolist())
        cells, answer = words[: size * size], words[size * size + 2 : -1]
        mines = {divmod(place, size) for place, cell in enumerate(cells) if cell == "*"}
        for place, word in enumerate(answer):
            r, c = divmod(place, size)
            near = sum((r + down, c + right) in mines for down, right in product((-1, 0, 1), repeat=2))
            assert word == ("*" if (r, c) in mines else str(near))
        shares.append(len(mines) / size**2 if size == 7 else 0.2)
    assert abs(sum(shares) / len(shares) - 0.2) < 0.02


def test_a_cell_next_to_none_needs_fewer():
    task = Minesweeper()
    sample = asked(task, "*-- --- ---")
    counts = task.depends_on(sample)[0].sum(1)[sample.answer[0]].tolist()
    assert counts == [1, 6, 4, 6, 9, 6, 4, 6, 4, 1]


def test_parities_from_the_end_are_those_of_the_reversed_bits():
    forward, backward = ParityScratchpad(), ParityScratchpad(order="reversed")
    one, other = draw(forward, [9] * 20), draw(backward, [9] * 20)
    assert torch.equal(one.tokens[:, :9], other.tokens[:, 1:10].flip(1))
    assert torch.equal(one.tokens[:, 10:], other.tokens[:, 10:])


def test_counts_are_uniform_and_so_are_their_places():
    task = Count(symbols=3)
    sample = draw(task, [4] * 15_000)
    query = sample.tokens[:, 5:6]
    hits = sample.tokens[:, :4] == query
    times = hits.sum(1)
    assert torch.equal(sample.tokens[:, 7] - task.vocabulary.index("0"), times)
    assert (torch.bincount(times, minlength=5) - 3000).abs().max() < 220
    assert (hits[times == 1].sum(0) - (times == 1).sum() / 4).abs().max() < 110
    assert (torch.bincount(query[:, 0] - 14, minlength=3) - 5000).abs().max() < 260


def test_counting_starts_anywhere():
    sample = draw(Counting(numbers=10), [7] * 8000)
    assert (torch.bincount(sample.tokens[:, 0] - 3, minlength=4) - 2000).abs().max() < 180


def test_no_symbol_is_favoured_by_the_majority():
    task = Majority(symbols=2)
    sample = draw(task, [6] * 8000)
    answer = sample.tokens[:, 7]
    assert abs((answer == task.vocabulary.index("a")).double().mean() - 0.5) < 0.025
    tie = (sample.tokens[:, :6] == answer[:, None]).sum(1) == 3
    assert torch.equal(sample.tokens[tie, 0], answer[tie])
    assert ((sample.tokens[:, :6] == answer[:, None]).sum(1) >= 3).all()


@pytest.mark.parametrize(
    ("task", "length", "complaint"),
    [
        (Sort(symbols=10, distinct=True), 11, "11 distinct symbols are asked for, and there are 10"),
        (Counting(numbers=10), 11, "in 1..10 .numbers., got 11"),
        (Minesweeper(), 0, "at least 1, got 0"),
        (Multiplication(), 0, "at least 1, got 0"),
        (BinaryAddition(), 0, "at least 1, got 0"),
        (ComputeSqrt(), 0, "at least 1, got 0"),
    ],
    ids=str,
)
def test_impossible_lengths_are_refused(task, length, complaint):
    with pytest.raises(BadInput, match=complaint):
        task.check_length(length)


BAD_PROMPTS: list[tuple[Task, list[str], str]] = [
    (PlainAddition(), ["37", "07 + 1", "1 + 2 + 3", "a + 1", "+ 1", ""], "a prompt is numbers, as in 37 \\+ 48"),
    (
        Subtraction(),
        ["37", "3 - 5", "; 1 1 - 1 =", "; 1 1", "5 + 3", "5 - 3 - 1"],
        "a prompt is numbers, as in 37 - 48",
    ),
    (
        BinaryAddition(),
        ["", "101", "1 +", "+ 1", "1 + 1 + 1", "1 = + 1", "1 . 1"],
        r"a prompt is two binary numbers, as in 001 \+ 01101",
    ),
    (BinaryMultiplication(), ["101", "1 *", "1 ; * 1"], r"a prompt is two binary numbers, as in 001 \* 01101"),
    (ComputeSqrt(), ["", "1 = 1", "1 . 0"], "a prompt is a binary number, as in 100101"),
    (
        PlainAddition(operand_order="reversed"),
        ["37", "07 + 1", "; 3 + 1 =", "1 ; + 3 =", "1 0 + 3 ; =", "a + 1", ";", ""],
        "a prompt is numbers, as in 37 \\+ 48",
    ),
    (Addition(operand_order="reversed"), ["37", "; 3 + 1 =", "1 ; + 3", "3a + 1", "+ 1", ""], "two numbers"),
]


@pytest.mark.parametrize(("task", "texts", "complaint"), BAD_PROMPTS, ids=label)
def test_what_is_no_prompt_is_refused(task, texts, complaint):
    for text in texts:
        with pytest.raises(BadInput, match=complaint):
            task.parse(text)


def test_numbers_typed_by_people():
    subtraction = Subtraction()
    assert subtraction.words(subtraction.parse("137 - 8")) == [";", "1", "3", "7", "-", "0", "0", "8", "="]
    assert subtraction.parse("; 1 3 7 - 0 0 8 =") == subtraction.parse("137-8=")
    several = MultiAddition(operands=Span(2, 12))
    assert several.words(several.parse("7+18+9=")) == [";", "0", "0", "7", "+", "0", "1", "8", "+", "0", "0", "9", "="]
    for task, typed, whole in (
        (Addition(operand_order="reversed"), "137 + 8", "7 3 1 + 8 0 0 ; ="),
        (PlainAddition(operand_order="reversed"), "137+8=", "7 3 1 + 8 ; ="),
        (Subtraction(operand_order="reversed"), "137 - 8", "7 3 1 - 8 0 0 ; ="),
        (MultiAddition(operand_order="reversed"), "37+48+11", "7 3 0 + 8 4 0 + 1 1 0 ; ="),
        (Multiplication(operand_order="reversed"), "137 * 12", "7 3 1 * 2 1 ; ="),
    ):
        assert task.words(task.parse(typed)) == whole.split()
        assert task.parse(whole) == task.parse(whole.removesuffix("=")) == task.parse(typed)
    eleven = several.parse(" + ".join("9" * 11))
    assert several.prompt_batch(eleven, 1).length.tolist() == [1]
    assert several.words(several.solve(several.prompt_batch(eleven, 1), 0)) == ["9", "9", "."]


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        ({"name": "addition", "order": "plain"}, "addition.order must be reversed"),
        ({"name": "plain_addition", "order": "plain"}, "plain_addition.order must be reversed"),
        ({"name": "subtraction", "borrow": "seen"}, "unknown value 'seen'"),
        ({"name": "minesweeper", "rows": -1}, "rows must be at least 0, got -1"),
        ({"name": "minesweeper", "mines": 1.0}, "mines must be between 0 and 1, got 1.0"),
        ({"name": "parity_scratchpad", "order": "back"}, "unknown value 'back'"),
        ({"name": "bucket_sort", "symbols": 1}, "bucket_sort.symbols must be at least 2, got 1"),
        ({"name": "counting", "numbers": 1}, "numbers must be at least 2, got 1"),
        ({"name": "count", "symbols": 1}, "symbols must be at least 2, got 1"),
        ({"name": "majority", "symbols": 1}, "symbols must be at least 2, got 1"),
        ({"name": "multiplication", "factor_digits": 0}, "factor_digits must be at least 1, got 0"),
        ({"name": "multi_addition", "operands": "1..3"}, "operands must be at least 2, got 1..3"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(plain, complaint):
    with pytest.raises(BadInput, match=complaint):
        build_part(Task, plain, "task")
