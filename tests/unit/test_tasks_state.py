"""Tasks that keep a state: automata, groups, arithmetic, stacks, and memories of one symbol."""

import re
from collections import Counter
from functools import cache
from itertools import groupby, pairwise

import pytest
import torch
from helpers import answer_of, draw

from longreach.api import Sample, Span, Task, stream
from longreach.errors import BadInput
from longreach.tasks import (
    Automaton,
    CycleNavigation,
    Dyck,
    EvenPairs,
    FlipFlop,
    HopInduction,
    LocalCount,
    MissingDuplicate,
    ModularArithmetic,
    NBack,
    SolveEquation,
    StackManipulation,
    WordProblem,
    build_sample,
)
from longreach.tasks.prefix_scan import scan


def solved(task: Task, text: str) -> str:
    tokens = task.parse(text)
    return " ".join(task.words(task.solve(task.prompt_batch(tokens, 1), 0)))


def words_of(task: Task, sample: Sample, row: int) -> tuple[list[str], list[str]]:
    """Prompt and answer."""
    words = task.words(sample.tokens[row, : int(sample.num_tokens[row])].tolist())
    end = int(sample.prompt_tokens[row])
    return words[:end], words[end:]


def ids_of(task: Task, text: str, answer_tokens: int, form: str) -> str:
    """Coupled IDs of a typed prompt and its answer."""
    ids = task.coupling(task.prompt_batch(task.parse(text), answer_tokens), form)
    return " / ".join(" ".join(map(str, level)) for level in ids[0].tolist())


def assert_uniform(values: torch.Tensor, count: int) -> None:
    """Each of 0..count-1 about equally often: within five standard deviations."""
    found = torch.bincount(values.flatten(), minlength=count)
    expected = values.numel() / count
    assert len(found) == count
    assert (found - expected).abs().max() < 5 * expected**0.5


@pytest.mark.parametrize("n", range(1, 20))
def test_a_scan_combines_in_order(n):
    maps = torch.stack([torch.randperm(7, generator=torch.Generator().manual_seed(i)) for i in range(n)])[None]
    state, expected = list(range(7)), []
    for one in maps[0].tolist():
        state = [one[x] for x in state]
        expected.append(state)
    assert scan(maps, lambda first, second: second.gather(-1, first))[0].tolist() == expected


def test_automata_step_by_step():
    ring = Automaton()
    assert solved(ring, "a a c b") == "2"
    assert solved(ring, "aacb =") == "2"
    pad = Automaton(scratchpad=True)
    assert solved(pad, "aacb") == "1 2 0 2 ."
    assert ids_of(pad, "aacb", 5, "published") == "2 3 4 5 6 1 2 3 4 5 0"
    assert ids_of(pad, "aacb", 5, "aligned") == "1 2 3 4 5 1 2 3 4 5 0"
    even = Automaton(table=[[0, 1], [1, 0]], accepting=[0])  # an even number of b
    assert [solved(even, text) for text in ("a", "b", "abab", "babb")] == ["yes", "no", "yes", "no"]


def test_an_automaton_recognises_what_a_regular_expression_does():
    task = Automaton(table=[[1, 0], [1, 2], [1, 0]], accepting=[2])  # ends in ab
    sample = draw(task, [3, 7, 12] * 200)
    for row in range(600):
        prompt, answer = words_of(task, sample, row)
        assert (answer == ["yes"]) == bool(re.fullmatch("[ab]*ab=", "".join(prompt)))
    deciding = task.depends_on(sample).any(1).sum(1)
    assert deciding.max() == 2  # the last two symbols decide, and one that is a decides alone
    assert deciding.min() == 1


def test_what_an_automaton_needs_is_the_shortest_end_that_decides():
    task = Automaton()
    sample = draw(task, [7] * 300)
    needs = task.depends_on(sample)
    for row in range(300):
        prompt = words_of(task, sample, row)[0][:-1]
        size = next(
            size
            for size in range(8)
            if len({task.follow([*before, *prompt[7 - size :]])[-1] for before in ("ab", "aa", "a")}) == 1 or size == 7
        )
        assert needs[row, 8].nonzero()[:, 0].tolist() == list(range(7 - size, 7))


def test_symbols_of_an_automaton_are_uniform():
    sample = draw(Automaton(), [9] * 3000)
    assert_uniform(sample.tokens[:, :9] - Automaton().vocabulary.index("a"), 3)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Automaton(table=[[0, 1], [1]]), "automaton.table must have rows of equal length"),
        (lambda: Automaton(table=[]), "automaton.table must have rows"),
        (lambda: Automaton(table=[[0, 2], [1, 0]]), "automaton.table must name states in 0..1"),
        (lambda: Automaton(start=3), "automaton.start must name states in 0..2, got 3"),
        (lambda: Automaton(accepting=[-1]), "automaton.accepting must name states"),
        (lambda: Automaton(accepting=[1], scratchpad=True), "automaton.accepting must be empty with a scratchpad"),
        (lambda: Automaton(table=[[0, 0], [0, 1]]), r"must lead from start to every state, but not to \[1\]"),
        (lambda: WordProblem(group="S7"), "word_problem.group must be in S2..S6, A3..A6 or Z2..Z1000, got S7"),
        (lambda: WordProblem(group="A2"), "word_problem.group must be in"),
        (lambda: WordProblem(group="D4"), "word_problem.group must be in"),
        (lambda: ModularArithmetic(modulus=1), "modular_arithmetic.modulus must be in 2..1000, got 1"),
        (lambda: ModularArithmetic(operators="+/"), "modular_arithmetic.operators must be some of"),
        (lambda: ModularArithmetic(operators="++"), "modular_arithmetic.operators must be some of"),
        (lambda: ModularArithmetic(scratchpad=True), "scratchpad must be false without brackets"),
        (lambda: ModularArithmetic(published=True), "published must be false without brackets"),
        (
            lambda: ModularArithmetic(brackets=True, scratchpad=True, published=True),
            "published must be false without brackets or with a scratchpad",
        ),
        (
            lambda: ModularArithmetic(brackets=True, operators="+*", published=True),
            r"operators must have \+ and - with published, got '\+\*'",
        ),
        (lambda: SolveEquation(modulus=1), "solve_equation.modulus must be in 2..1000, got 1"),
        (lambda: MissingDuplicate(symbols=1), "missing_duplicate.symbols must be at least 2, got 1"),
        (lambda: StackManipulation(symbols=0), "stack_manipulation.symbols must be at least 1, got 0"),
        (lambda: Dyck(kinds=5), "dyck.kinds must be in 1..4, got 5"),
        (lambda: Dyck(max_depth=-1), "dyck.max_depth must be at least 0, got -1"),
        (lambda: FlipFlop(ignore=1.5), "flip_flop.ignore must be in 0..1, got 1.5"),
        (lambda: HopInduction(hops=0), "hop_induction.hops must be at least 1, got 0"),
        (lambda: HopInduction(symbols=1), "hop_induction.symbols must be at least 2, got 1"),
        (lambda: LocalCount(names=1), "local_count.names must be at least 2, got 1"),
        (lambda: LocalCount(runs=Span(0, 2)), "local_count.runs must be at least 1, got 0..2"),
        (lambda: NBack(n=0), "n_back.n must be at least 1, got 0"),
        (lambda: NBack(symbols=1), "n_back.symbols must be at least 2, got 1"),
        (lambda: CycleNavigation(ring=1), "cycle_navigation.ring must be at least 2, got 1"),
    ],
)
def test_impossible_settings_are_refused(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


@pytest.mark.parametrize(
    ("task", "text", "complaint"),
    [
        (Automaton(), "a = b", "automaton: a prompt is symbols"),
        (Automaton(), "=", "automaton: a prompt is symbols"),
        (Automaton(), "a 1", "automaton: a prompt is symbols"),
        (Automaton(), "a d", "'d' is not a token"),
        (WordProblem(), "21345 2134", "'2134' is not a token"),
        (WordProblem(), "", "word_problem: a prompt is symbols"),
        (ModularArithmetic(), "1 + + 2", "a prompt is an expression such as 1 "),
        (ModularArithmetic(), "1 + 2 -", "a prompt is an expression"),
        (ModularArithmetic(), "", "a prompt is an expression"),
        (ModularArithmetic(brackets=True), "1 + 2", "a prompt is an expression such as . . 1 "),
        (ModularArithmetic(brackets=True), "(1 + 2 + 3)", "a prompt is an expression"),
        (ModularArithmetic(brackets=True), "(1 + 2)) + (1", "a prompt is an expression"),
        (ModularArithmetic(brackets=True), "((1 + 2)", "a prompt is an expression"),
        (ModularArithmetic(brackets=True), "(1 + 2) (1 + 2)", "a prompt is an expression"),
        (ModularArithmetic(brackets=True), "3", "a prompt is an expression"),
        *(
            (ModularArithmetic(brackets=True, published=True), text, "a prompt is an expression such as . . 1 ")
            for text in (
                "",
                "()",
                "1 + 2",
                "-(1)",
                "--1",
                "((1))",
                "(-(1+2))",
                "(1+2",
                "1)",
                "(1+2+3)",
                "(1 2)",
                "(+1)",
            )
        ),
        *(
            (SolveEquation(), text, "solve_equation: a prompt is an equation such as")
            for text in ("1 = 1", "(x + x) = 1", "x = ", "x = x", "(x) 1", "(x = 1", "0 0 0", "1", "= x 1", "x")
        ),
        (EvenPairs(), "a even", "even_pairs: a prompt is a and b"),
        (EvenPairs(), "=", "even_pairs: a prompt is a and b"),
        (MissingDuplicate(), "a b a", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "a", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "-", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "a b a ? - -", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "a - a ? -", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "a b a b", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "a ? ? b", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "a a b ?", "missing_duplicate: a prompt is a string twice"),
        (MissingDuplicate(), "? ?", "missing_duplicate: a prompt is a string twice"),
        (StackManipulation(), "a - b", "stack_manipulation: a prompt is symbols and actions"),
        (StackManipulation(), "- +a", "stack_manipulation: a prompt is symbols and actions"),
        (StackManipulation(), "a ; -", "stack_manipulation: a prompt is symbols and actions"),
        (Dyck(), "( [ )", "dyck: a prompt is brackets, closed in the right order, as in"),
        (Dyck(), ") (", "dyck: a prompt is brackets"),
        (Dyck(), "", "dyck: a prompt is brackets"),
        (Dyck(), "( { ", "'{' is not a token"),
        (Dyck(max_depth=2), "( ( [", "dyck: a prompt is brackets, closed in the right order, at most 2 deep"),
        (FlipFlop(), "r 1 r", "flip_flop: a prompt is instructions and bits"),
        (FlipFlop(), "w 1 i r", "flip_flop: a prompt is instructions and bits"),
        (FlipFlop(), "w 1 0 i r", "flip_flop: a prompt is instructions and bits"),
        (HopInduction(), "a ; b", "hop_induction: a prompt is symbols between"),
        (HopInduction(), "", "hop_induction: a prompt is symbols between"),
        (LocalCount(), "a 1", "local_count: a prompt is symbols"),
        (LocalCount(runs=Span(1, 3)), "abbbb", "local_count: a prompt is runs of at most 3"),
        (NBack(), "a - b", "n_back: a prompt is 2 times - and symbols"),
        (NBack(), "- -", "n_back: a prompt is 2 times - and symbols"),
        (CycleNavigation(), "> 1", "cycle_navigation: a prompt is symbols"),
    ],
)
def test_what_is_no_prompt_is_refused(task, text, complaint):
    with pytest.raises(BadInput, match=complaint):
        task.parse(text)


def test_products_of_permutations():
    task = WordProblem()
    assert solved(task, "21345 13245") == "31245"
    assert solved(task, "13245 21345") == "23145"  # the left one acts first
    assert solved(WordProblem(scratchpad=True), "21345 13245 23451") == "21345 31245 42351 ."
    assert solved(WordProblem(group="Z60"), "59 2 10") == "11"
    pad = WordProblem(group="S3", scratchpad=True)
    assert ids_of(pad, "213 132", 3, "published") == "2 3 4 1 2 3 0"
    assert ids_of(pad, "213 132", 3, "aligned") == "1 2 3 1 2 3 0"


@pytest.mark.parametrize(
    ("group", "order"), [("S2", 2), ("S3", 6), ("S5", 120), ("S6", 720), ("A3", 3), ("A4", 12), ("A6", 360), ("Z7", 7)]
)
def test_groups_are_groups(group, order):
    task = WordProblem(group=group)
    assert len(set(task.symbols)) == order
    if group[0] == "Z":
        return
    elements = task._permutations(torch.arange(order))
    assert ["".join(str(image + 1) for image in one) for one in elements.tolist()] == list(task.symbols)
    if group[0] == "A":  # an even permutation is a matrix of determinant 1
        matrices = torch.eye(int(group[1]), dtype=torch.double)[elements]
        assert torch.allclose(torch.linalg.det(matrices), torch.ones(order, dtype=torch.double))
    sample = draw(task, [5] * 400)
    for row in range(400):  # as matrices, the left one first
        prompt, answer = words_of(task, sample, row)
        product = torch.eye(int(group[1]))
        for word in prompt[:-1]:
            product = product @ torch.eye(int(group[1]))[[int(image) - 1 for image in word]]
        assert [int(image) - 1 for image in answer[0]] == product.argmax(1).tolist()


def test_elements_are_uniform():
    task = WordProblem(group="A5")
    sample = draw(task, [10] * 2000)
    assert_uniform(sample.tokens[:, :10] - 2, 60)
    assert_uniform(sample.tokens[:, 11] - 2, 60)  # and so is their product


def test_moves_round_a_ring():
    assert solved(CycleNavigation(), ">>-<") == "1"
    assert solved(CycleNavigation(), "<") == "4"
    pad = CycleNavigation(ring=3, scratchpad=True)
    assert solved(pad, "> > > < <") == "1 2 0 2 1 ."
    assert ids_of(pad, ">>-<", 5, "published") == "2 3 4 5 6 1 2 3 4 5 0"
    assert ids_of(CycleNavigation(), ">>-<", 1, "published") == "1 1 1 1 2 1"
    assert ids_of(CycleNavigation(), ">>-<", 1, "aligned") == "1 1 1 1 1 0"
    sample = draw(CycleNavigation(), [9] * 3000)
    assert_uniform(sample.tokens[:, :9] - CycleNavigation().vocabulary.index("-"), 3)


def test_expressions_worked_out():
    assert solved(ModularArithmetic(), "1 + 2 * 3") == "2"
    assert solved(ModularArithmetic(), "1-1-1") == "4"
    assert solved(ModularArithmetic(), "0*1+4*3-2") == "0"
    assert solved(ModularArithmetic(brackets=True), "((1 + 2) * 3)") == "4"
    pad = ModularArithmetic(brackets=True, scratchpad=True)
    assert solved(pad, "((1 + 2) * 3)") == "3 4 ."
    assert solved(pad, "((1 - (2 * 4)) - (3 + 3))") == "3 3 1 2 ."


@pytest.mark.parametrize("brackets", [False, True])
@pytest.mark.parametrize(("modulus", "operators"), [(5, "+-*"), (12, "-"), (7, "*+")])
def test_expressions_are_what_python_makes_of_them(brackets, modulus, operators):
    task = ModularArithmetic(modulus=modulus, operators=operators, brackets=brackets)
    sample = draw(task, [2, 3, 8, 25] * 100)
    for row, length in enumerate(sample.length.tolist()):
        prompt, answer = words_of(task, sample, row)
        assert len(re.findall("[0-9]+", " ".join(prompt))) == length
        assert answer == [str(eval("".join(prompt[:-1])) % modulus)]


def test_a_flat_expression_may_be_one_number():
    sample = draw(ModularArithmetic(), [1, 1, 1], max_length=3)
    assert (sample.tokens[:, 0] == sample.tokens[:, 2]).all()


def test_numbers_operators_and_brackets_are_uniform():
    task = ModularArithmetic()
    tokens = draw(task, [10] * 2000).tokens
    assert_uniform(tokens[:, 0:19:2] - task.vocabulary.index("0"), 5)
    assert_uniform(tokens[:, 1:18:2] - task.vocabulary.index("+"), 3)
    task = ModularArithmetic(brackets=True)
    sample = draw(task, [5] * 4000)
    outermost, within = [], []
    for row in range(4000):
        text = re.sub("[0-9]", "x", "".join(words_of(task, sample, row)[0]))
        before, depth = 0, 0
        for character in text:
            depth += {"(": 1, ")": -1}.get(character, 0)
            if character in "+-*":
                if depth == 1:
                    outermost.append(before)
                before += 1
        if outermost[-1] == 3:  # the left side has three operators
            within.append(text.startswith("((((") + 2 * text.startswith("(((x") + 3 * text.startswith("((x"))
    assert_uniform(torch.tensor(outermost), 4)
    counts = torch.bincount(torch.tensor(within), minlength=4).tolist()
    # each of the three is the outermost on the left with probability 1/3, and so on: 1/6 begin ((((, and 1/2 (((x
    assert counts[0] == 0
    assert abs(counts[1] / len(within) - 1 / 6) < 0.06
    assert abs(counts[2] / len(within) - 3 / 6) < 0.08


def test_published_expressions_have_signs_and_single_numbers_in_brackets():
    task = ModularArithmetic(brackets=True, published=True)
    texts = ["3", "-3", "(3)", "(-3)", "(1--2)", "((-1)*4)", "((1+2)-(-3*(4)))"]
    assert [solved(task, text) for text in texts] == ["3", "2", "3", "2", "3", "1", "0"]
    sample = draw(task, [1, 2, 3, 4] * 50, max_length=9)
    shapes = {re.sub("[0-4]", "d", "".join(words_of(task, sample, row)[0])) for row in range(200)}
    assert shapes == {"d=", "-d=", "(d)=", "(-d)="}


@pytest.mark.parametrize("operators", ["+-", "+-*"])
def test_published_expressions_are_what_python_makes_of_them(operators):
    task = ModularArithmetic(modulus=7, operators=operators, brackets=True, published=True)
    lengths = [*range(1, 60), 250]
    sample = draw(task, lengths)
    for row, length in enumerate(lengths):
        prompt, answer = words_of(task, sample, row)
        assert len(prompt) == length + 1
        assert answer == [str(eval("".join(prompt[:-1])) % 7)]


@cache
def shares_of_shapes(length: int) -> dict[str, float]:
    """The probability of each expression of the published law, with d for numbers and o for operators."""
    if length < 5:
        return {("d", "-d", "(d)", "(-d)")[length - 1]: 1.0}
    found: Counter[str] = Counter()
    for size in range(1, length - 3):
        for left, p in shares_of_shapes(size).items():
            for right, q in shares_of_shapes(length - 3 - size).items():
                found[f"({left}o{right})"] += p * q / (length - 4)
    return found


def test_published_expressions_have_the_law_of_the_authors():
    task = ModularArithmetic(brackets=True, published=True)
    rows = 6000
    for length in (9, 14):
        sample = draw(task, [length] * rows)
        texts = ["".join(words_of(task, sample, row)[0][:-1]) for row in range(rows)]
        # an operator follows a number or a bracket that closes
        counts = Counter(re.sub(r"(?<=[d)])[-+*]", "o", re.sub("[0-4]", "d", text)) for text in texts)
        expected = shares_of_shapes(length)
        assert set(counts) <= set(expected)
        assert sum(expected.values()) == pytest.approx(1)
        for shape, share in expected.items():
            assert abs(counts[shape] - share * rows) < 5 * (share * rows) ** 0.5 + 1
        assert_uniform(torch.tensor([int(digit) for text in texts for digit in re.findall("[0-4]", text)]), 5)
        operators = [operator for text in texts for operator in re.findall(r"(?<=[0-4)])[-+*]", text)]
        assert_uniform(torch.tensor(["+-*".index(operator) for operator in operators]), 3)


@pytest.mark.parametrize("modulus", [2, 5, 12])
def test_the_solution_of_an_equation_is_the_only_one(modulus):
    task = SolveEquation(modulus=modulus)
    lengths = [*range(3, 40), 250]
    sample = draw(task, lengths)
    for row, length in enumerate(lengths):
        prompt, answer = words_of(task, sample, row)
        left, right = "".join(prompt).split("=")
        assert len(prompt) == length
        right_ones = [x for x in range(modulus) if eval(left, {"x": x}) % modulus == int(right)]
        assert [str(x) for x in right_ones] == answer


def test_equations_by_hand():
    task = SolveEquation()
    assert [solved(task, text) for text in ("x=3", "-x=3", "(x)=0", "((x-2)+(-4))=3", "(1-(2-x))=1")] == list("32042")
    sample = draw(task, [1, 2, 1, 2])  # no equation is that short: zeros, as in the authors' code
    assert [words_of(task, sample, row) for row in (0, 1)] == [(["0"], ["0"]), (["0", "0"], ["0"])]
    assert [solved(task, text) for text in ("0", "0 0")] == ["0", "0"]


def test_the_unknown_is_the_first_number_behind_a_uniform_place():
    task = SolveEquation()
    rows = 6000
    sample = draw(task, [9] * rows)
    texts = Counter(re.sub("[0-4]", "d", "".join(words_of(task, sample, row)[0][:7])) for row in range(rows))
    # of ( d o ( d ) ) one of seven places is the first number, three lead to the second, and three to the first again
    for shape, share in shares_of_shapes(7).items():
        wanted = shape.index("d")
        counts = [n for text, n in texts.items() if re.sub(r"(?<=[xd)])[-+]", "o", text).replace("x", "d") == shape]
        firsts = [
            n
            for text, n in texts.items()
            if re.sub(r"(?<=[xd)])[-+]", "o", text).replace("x", "d") == shape and text.index("x") == wanted
        ]
        second = shape.rindex("d")
        assert abs(sum(counts) - share * rows) < 5 * (share * rows) ** 0.5
        assert abs(sum(firsts) / sum(counts) - (7 - second + wanted) / 7) < 0.08


def test_a_value_needs_its_operator_and_two_numbers():
    task = ModularArithmetic(brackets=True, scratchpad=True)
    sample = draw(task, [6] * 50)
    needs = task.depends_on(sample)
    for row in range(50):
        words = task.words(sample.tokens[row].tolist())
        first = int(sample.prompt_tokens[row])
        for step in range(first, first + 5):
            read = [words[place] for place in needs[row, step].nonzero()[:, 0].tolist()]
            operator = next(word for word in read if word in "+-*")
            left, right = (word for word in read if word not in "+-*")
            results = {eval(f"{a}{operator}{b}") % 5 for a, b in ((left, right), (right, left))}
            assert int(words[step]) in results
        assert [words[place] for place in needs[row, first + 5].nonzero()[:, 0].tolist()] == [";"]


def test_pairs_duplicates_and_stacks_by_hand():
    assert [solved(EvenPairs(), text) for text in ("a", "abba", "ab", "aabab")] == ["even", "even", "odd", "odd"]
    twice = MissingDuplicate()
    assert [solved(twice, text) for text in ("abbab?", "?a ba", "a?")] == ["b", "b", "a"]
    assert ids_of(twice, "abbab?", 1, "published") == "1 2 3 1 2 3 0 3"
    assert ids_of(twice, "a?babb", 1, "aligned") == "1 2 3 1 2 3 2 0"
    stack = StackManipulation()
    assert solved(stack, "; a b b - - +b =") == "b a ."
    assert solved(stack, "a - - - +b") == "b ."
    assert solved(stack, "a -") == "."
    assert ids_of(stack, "; a b b - - +b =", 3, "published") == "1 2 3 4 4 3 3 0 3 2 0"
    assert ids_of(stack, "; a b b - - +b =", 3, "aligned") == "1 2 3 4 4 3 3 3 2 1 0"
    assert ids_of(stack, "; a - - +b =", 2, "published") == "1 2 2 1 2 0 2 0"  # a pop that finds nothing


def test_holes_and_stacks_are_drawn_uniformly():
    task = MissingDuplicate()
    sample = draw(task, [8] * 4000)
    assert_uniform((sample.tokens == task.vocabulary.index("?")).long().argmax(1), 8)
    assert_uniform(sample.tokens[:, 9] - task.vocabulary.index("a"), 2)
    task = StackManipulation()
    tokens = draw(task, [6] * 6000).tokens[:, 1:7]
    action = tokens >= task.vocabulary.index("-")
    assert_uniform(5 - action.sum(1), 5)  # 1 to 5 symbols at the start
    assert (action.diff(dim=1) | action[:, 1:] == action[:, 1:]).all()
    assert_uniform(tokens[action] - task.vocabulary.index("-"), 3)
    assert_uniform(tokens[~action] - task.vocabulary.index("a"), 2)


@pytest.mark.parametrize("symbols", [2, 5])
def test_odd_lengths_have_an_empty_token_behind_the_copies(symbols):
    task = MissingDuplicate(symbols=symbols)
    lengths = [*range(1, 60), 251]
    sample = draw(task, lengths)
    again = task.redraw(sample, stream(1, "again", torch.arange(len(lengths))))
    for one in (sample, again):
        for row, length in enumerate(lengths):
            prompt, answer = words_of(task, one, row)
            assert len(prompt) == length + 1
            assert (prompt[-2] == "-") == (length % 2 == 1 and length > 1)
            assert prompt.count("-") == (length % 2 == 1 and length > 1)
            assert task.solve(one, row) == answer_of(one, row)
            assert answer == words_of(task, sample, row)[1]
    assert words_of(task, sample, 0) == (["b", "="], ["b"])  # as in the authors' code
    counts = task.depends_on(sample).sum(2).amax(1).tolist()
    assert counts == [1, *[2] * (len(lengths) - 1)]
    holes = (draw(task, [7] * 3000).tokens == task.vocabulary.index("?")).long().argmax(1)
    assert_uniform(holes, 6)
    assert ids_of(task, "ab?b-", 1, "published") == "1 2 1 2 0 0 1"
    assert ids_of(task, "ab?b-", 1, "aligned") == "1 2 1 2 0 1 0"


def test_even_pairs_need_the_two_ends():
    task = EvenPairs()
    sample = draw(task, [1, 2, 9])
    needs = task.depends_on(sample)
    assert [needs[row].any(0).nonzero()[:, 0].tolist() for row in range(3)] == [[0], [0, 1], [0, 8]]


def test_a_symbol_of_the_stack_needs_what_was_done_since():
    task = StackManipulation()
    words = [";", "a", "b", "+b", "-", "+a", "+b", "-", "="]
    tokens = [task.vocabulary.index(word) for word in [*words, "a", "b", "a", "."]]
    sample = build_sample(torch.tensor([tokens]), *(torch.tensor([n]) for n in (7, 9, 13)))
    assert task.solve(sample, 0) == answer_of(sample, 0)
    needs = task.depends_on(sample)[0, 9:]
    assert [row.nonzero()[:, 0].tolist() for row in needs] == [
        [5, 6, 7],
        [2, 3, 4, 5, 6, 7],
        [1, 3, 4, 5, 6, 7],
        [0, 3, 4, 5, 6, 7],
    ]


@pytest.mark.parametrize(
    ("task", "length", "complaint"),
    [
        (MissingDuplicate(), 0, "missing_duplicate: length must be at least 1, got 0"),
        (ModularArithmetic(brackets=True, published=True), 0, "modular_arithmetic: length must be at least 1, got 0"),
        (SolveEquation(), 0, "solve_equation: length must be at least 1, got 0"),
        (ModularArithmetic(brackets=True), 1, "modular_arithmetic: length must be at least 2 with brackets, got 1"),
        (FlipFlop(), 1, "flip_flop: length must be at least 2, got 1"),
    ],
)
def test_impossible_lengths_are_refused(task, length, complaint):
    with pytest.raises(BadInput, match=complaint):
        task.check_length(length)


def test_brackets_bits_hops_counts_and_symbols_back_by_hand():
    brackets = Dyck(kinds=3)
    assert solved(brackets, "([]{") == "} ) ."
    assert solved(brackets, "; ( ) =") == "."
    assert ids_of(brackets, "; ( [ ] { =", 3, "published") == "1 2 3 3 3 0 3 2 0"
    assert ids_of(brackets, "; ( [ ] { =", 3, "aligned") == "1 2 3 3 3 3 2 1 0"
    assert solved(FlipFlop(), "w1 i0 w0 i1 r0 i1 r") == "0"
    assert solved(HopInduction(), "b c a b a") == "c"
    assert solved(HopInduction(), "; c a b a =") == ";"
    assert solved(HopInduction(hops=1), "a b c a b a") == "b"
    assert solved(HopInduction(hops=5), "c a a") == "a"  # it stays where it is
    counts = LocalCount()
    assert solved(counts, "aaccca") == "1 2 1 2 3 1 ."
    assert ids_of(counts, "aab", 4, "published") == "2 3 4 5 1 2 3 4 0"
    assert ids_of(counts, "aab", 4, "aligned") == "1 2 3 4 1 2 3 4 0"
    back = NBack()
    assert solved(back, "- - c a b ; =") == "- - c ."
    assert solved(back, "cab") == "- - c ."
    assert solved(NBack(n=4), "cab") == "- - - ."
    assert ids_of(back, "cab", 4, "published") == "2 3 4 5 6 7 1 2 3 4 0"
    assert ids_of(back, "cab", 4, "aligned") == "1 2 3 4 5 6 1 2 3 6 0"


@pytest.mark.parametrize("max_depth", [0, 1, 2, 5])
def test_open_brackets_walk_freely_between_the_bounds(max_depth):
    task = Dyck(kinds=3, max_depth=max_depth)
    sample = draw(task, [30] * 2000)
    tokens = sample.tokens[:, 1:31]
    opens = tokens < task.vocabulary.index(")")
    step = torch.where(opens, 1, -1)
    before = step.cumsum(1) - step
    assert (step[before == 0] == 1).all()
    if max_depth:
        assert before.max() <= max_depth
        assert (step[before == max_depth] == -1).all()
    else:
        assert before.max() > 10
    free = (before > 0) & (before != max_depth) if max_depth else before > 0
    if free.any():
        assert_uniform(opens[free].long(), 2)
    assert_uniform(tokens[opens] - task.vocabulary.index("("), 3)
    # with its answer every prompt is a Dyck word
    for row in range(200):
        text = "".join(word for word in task.words(sample.tokens[row].tolist()) if word in "()[]{}")
        assert task._reduced(text) == ""


def test_kinds_of_brackets_do_not_depend_on_each_other():
    task = Dyck(kinds=2)
    tokens = draw(task, [2] * 8000).tokens[:, 1:3]
    both = tokens[tokens[:, 1] < 6] - 4  # two that open
    assert_uniform(both[:, 0] * 2 + both[:, 1], 4)


def test_instructions_have_their_probabilities():
    task = FlipFlop(ignore=0.6)
    sample = draw(task, [12] * 4000)
    again = task.redraw(sample, stream(1, "again", torch.arange(4000)))
    for one in (sample, again):  # what is drawn again has the same law
        instructions = one.tokens[:, 2:22:2].flatten()
        shares = torch.bincount(instructions, minlength=4)[1:] / len(instructions)
        assert torch.allclose(shares, torch.tensor([0.2, 0.2, 0.6]), atol=0.012)
        assert (one.tokens[:, 0] == task.vocabulary.index("w")).all()
        assert (one.tokens[:, 22] == task.vocabulary.index("r")).all()
        assert_uniform(one.tokens[:, 23] - task.vocabulary.index("0"), 2)
    moved = sample.tokens[:, 2:22:2] != again.tokens[:, 2:22:2]
    assert moved.double().mean() > 0.3
    for row in range(300):  # a read says what was written last
        memory = ""
        for instruction, bit in zip(*[iter(task.words(sample.tokens[row].tolist()))] * 2, strict=True):
            memory = bit if instruction == "w" else memory
            assert instruction != "r" or bit == memory


def test_hops_are_those_of_the_definition():
    task = HopInduction(hops=3, symbols=3)

    def find(symbols: str, place: int) -> int:
        """The largest j <= place with symbol j - 1 like the one at place, counted from 1; 0 if there is none."""
        return max((j for j in range(2, place + 1) if symbols[j - 2] == symbols[place - 1]), default=0)

    sample = draw(task, [3, 6, 12] * 300)
    for row in range(900):
        prompt, answer = words_of(task, sample, row)
        symbols = "".join(prompt[1:-1])
        place = len(symbols)
        for _ in range(3):
            place = find(symbols, place) if place else 0
        assert answer == [symbols[place - 1] if place else ";"]


def test_what_hops_do_not_need_is_drawn_again_by_the_law():
    task = HopInduction(symbols=3)
    first = draw(task, [7] * 6000)
    again = task.redraw(first, stream(2, "again", torch.arange(6000)))
    assert_uniform(first.tokens[:, 1:8] - 3, 3)
    assert_uniform(again.tokens[:, 1:8] - 3, 3)
    assert torch.equal(task.depends_on(first), task.depends_on(again))  # the hops go where they went
    pairs = [(one.tokens[:, 2:8] - 3) * 3 + one.tokens[:, 1:7] - 3 for one in (first, again)]
    for one in pairs:
        assert_uniform(one, 9)


@pytest.mark.parametrize("runs", [Span(1, 3), Span(2, 8), Span(4, 4)])
def test_runs_have_their_lengths(runs):
    task = LocalCount(runs=runs, names=4)
    sample = draw(task, [60] * 400)
    sizes, steps = [], []
    for row in sample.tokens[:, :60].tolist():
        found = [(symbol, len(list(run))) for symbol, run in groupby(row)]
        assert found[-1][1] <= runs.high
        sizes += [size for _, size in found[:6]]  # long ones are not cut more often than others here
        steps += [(second - first) % 4 - 1 for (first, _), (second, _) in pairwise(found)]
    assert_uniform(torch.tensor(sizes) - runs.low, runs.high - runs.low + 1)
    assert_uniform(torch.tensor(steps), 3)
    assert_uniform(sample.tokens[:, 0] - task.vocabulary.index("a"), 4)


def test_long_samples_are_as_right_as_short_ones():
    for task in (
        Automaton(scratchpad=True),
        WordProblem(scratchpad=True),
        CycleNavigation(),
        ModularArithmetic(),
        ModularArithmetic(brackets=True, scratchpad=True),
        ModularArithmetic(brackets=True, published=True),
        SolveEquation(),
        StackManipulation(),
        Dyck(max_depth=40),
        FlipFlop(ignore=0.999),
        HopInduction(symbols=500),
        LocalCount(),
        NBack(n=700),
    ):
        sample = draw(task, [3000])
        assert task.solve(sample, 0) == answer_of(sample, 0)
