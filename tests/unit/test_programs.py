"""Programs with cursors: those of the examples equal the tasks of the same names, and the shipped ones are sparse."""

import ast
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise, product
from pathlib import Path

import pytest
import torch
from helpers import answer_of, draw
from hypothesis import given, settings
from hypothesis import strategies as st

from longreach import tasks
from longreach.api import Program, Region, Sample, Span, Task
from longreach.config.registry import entries
from longreach.errors import BadInput
from longreach.tasks import (
    Insertion,
    LongDivision,
    Merge,
    Polynomial,
    PromptAutomaton,
    RunLengthDecode,
    RunLengthEncode,
    StackMachine,
    StringSearch,
    Translate,
    TreeBfs,
)
from longreach.tasks.cursors import Trace

ROOT = Path(__file__).parents[2]
Ids = list[list[int]]
Change = Callable[[Ids, list[str], int], Ids]
"""Rewrites the IDs of a task, by level, in the program's convention: from the IDs, the words and the prompt's size."""


# programs of the examples beside vectorised tasks


def _examples() -> dict[str, type[Program]]:
    scope: dict[str, type[Program]] = {}
    exec(compile((ROOT / "examples" / "programs.py").read_text(), "programs.py", "exec"), scope)
    return scope


EXAMPLES = _examples()


@dataclass(frozen=True, kw_only=True)
class ReversedParity(EXAMPLES["ParityScratchpad"]):
    regions = {"bits": Region(backward=True)}  # noqa: RUF012


@dataclass(frozen=True, kw_only=True)
class ReversedAddition(EXAMPLES["Addition"]):
    """Operands that begin with the least significant digit."""

    regions = {"first": Region(close="+"), "second": Region()}  # noqa: RUF012


def same(ids: Ids, words: list[str], end: int) -> Ids:
    return ids


def sign_below(ids: Ids, words: list[str], end: int) -> Ids:
    """Cho et al. give the signs = and + the ID 1 and count everything else from 2; programs reserve the signs."""
    assert all(level[at] == 1 for level in ids for at in range(end) if words[at] in "=+")
    return [[max(0, number - 1) for number in level] for level in ids]


def mirrored(ids: Ids, words: list[str], end: int) -> Ids:
    """Places count from the first word of the prompt, backward programs count from the last: each is n + 2 less it."""
    return [[(end - number) * (number > 0) for number in level] for level in ids]


def mirrored_sign(ids: Ids, words: list[str], end: int) -> Ids:
    """As `mirrored`; Cho et al. give the sign the ID just beyond the last word's, programs reserve it."""
    assert all(level[end - 1] == end for level in ids)
    return mirrored(ids, words, end)


def query_has_no_field(ids: Ids, words: list[str], end: int) -> Ids:
    """The task numbers the query's token as the left side of a statement, and so what reads or repeats the query.

    To a program the query is no statement and has no field.  Neither has, in the aligned form, a name without a
    statement, where there is nothing to read next.
    """
    statement, token = ids
    assert token[end - 2] == 1
    without = [0 if at >= end - 2 and number == 0 else of for at, (number, of) in enumerate(zip(*ids, strict=True))]
    return [statement, without]


def sign_starts_the_marks(ids: Ids, words: list[str], end: int) -> Ids:
    """The cursor over the marks stands at the first one from the start, so that = carries it; the task reserves =."""
    statement, step = ids
    assert step[end - 1] == 0
    return [statement, [*step[: end - 1], 1, *step[end:]]]


def start_holds_the_marks(ids: Ids, words: list[str], end: int) -> Ids:
    """The first name is read from the query alone: the program's token still carries the mark, which comes next."""
    statement, step = ids
    assert step[end] == 0
    return [statement, [*step[:end], 1, *step[end + 1 :]]]


@dataclass(frozen=True)
class Pair:
    """A vectorised task and the program that should equal it, but for the named conventions."""

    task: Task
    program: Program
    shortest: int = 1
    longest: int = 20
    published: Change = same
    aligned: Change = same
    levels: int = 0
    """Levels of the program that the task has too; 0: all of them."""


PAIRS = [
    Pair(tasks.Copy(symbols=8), EXAMPLES["Copy"](), published=sign_below),
    Pair(tasks.Reverse(symbols=8), EXAMPLES["Reverse"](), published=mirrored_sign, aligned=mirrored),
    Pair(tasks.ParityScratchpad(), EXAMPLES["ParityScratchpad"](), published=sign_below),
    Pair(tasks.ParityScratchpad(order="reversed"), ReversedParity(), published=mirrored_sign, aligned=mirrored),
    Pair(tasks.Addition(), EXAMPLES["Addition"](), published=sign_below),
    Pair(
        tasks.VariableAssignment(num_names=26, hops=Span(1, 4), echo=True, distractors="pointers"),
        EXAMPLES["VariableAssignment"](),
        published=query_has_no_field,
        aligned=query_has_no_field,
    ),
    Pair(
        tasks.VariableAssignment(num_names=26, hops=Span(1, 4), echo=True, end="marked"),
        EXAMPLES["VariableAssignment"](),
        shortest=2,
        published=query_has_no_field,
        aligned=query_has_no_field,
    ),
    Pair(
        tasks.PointerChasing(num_names=26, hops=Span(1, 9)),
        EXAMPLES["PointerChasing"](),
        shortest=2,
        published=start_holds_the_marks,
        aligned=sign_starts_the_marks,
        levels=2,  # the task has no level for the two names of a statement
    ),
    Pair(tasks.Tape(), EXAMPLES["Tape"](), shortest=2),
    Pair(tasks.Tape(steps=Span(1, 9)), EXAMPLES["Tape"](), shortest=2),
]


def _needs_of_pointer_chasing(needs: set[int], trace: Trace, number: int) -> set[int]:
    """A program moves its cursors before it reads the mark: its stop has looked up the last name, too."""
    if number < len(trace.answer):
        return needs
    last = len(trace.words) - 1
    left = next(at for at in range(0, last, 2) if trace.words[at] == trace.words[last])
    return {*needs, last, left}


def _needs_of_tape(needs: set[int], trace: Trace, number: int) -> set[int]:
    """The task counts the tokens that are needed without IDs: the mark and all moves.  A program counts what was read:
    the last move and the cell."""
    moves = {trace.end + at for at in trace.given}
    return needs - (moves - {trace.end + number - 1}) - {trace.words.index("^")}


NEEDS = {"pointer_chasing": _needs_of_pointer_chasing, "tape": _needs_of_tape}


def _rows(pair: Pair, length: int, seed: int) -> Iterator[tuple[Sample, list[str], Trace]]:
    length = min(max(length, pair.shortest), pair.longest)
    sample = draw(pair.task, [length] * 3, seed)
    for row in range(3):
        one = sample.rows(row, row + 1)
        words = pair.task.words(one.tokens[0, : int(one.num_tokens[0])].tolist())
        end = int(one.prompt_tokens[0])
        drawn = [words[at] for at in one.given[0].nonzero()[:, 0].tolist() if words[at] != "."]
        yield one, words, pair.program.trace(pair.program.read_prompt(words[:end], drawn))


every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: str(pair.task)[:60])
few = settings(max_examples=12, deadline=None)


@every_pair
@few
@given(length=st.integers(1, 20), seed=st.integers(0, 1000))
def test_a_program_writes_the_answers_of_the_task(pair, length, seed):
    for sample, words, trace in _rows(pair, length, seed):
        assert [*trace.words, "."] == words
        row, end = trace.row(), int(sample.prompt_tokens[0])
        assert list(row.prompt) == words[:end]
        assert [end + at for at in row.given] == sample.given[0].nonzero()[:, 0].tolist()


@every_pair
@few
@given(length=st.integers(1, 20), seed=st.integers(0, 1000))
def test_a_program_has_the_ids_of_the_task(pair, length, seed):
    for sample, words, trace in _rows(pair, length, seed):
        end, size = int(sample.prompt_tokens[0]), len(words)
        for form, change in (("published", pair.published), ("aligned", pair.aligned)):
            expected = change(pair.task.coupling(sample, form)[0, :, :size].tolist(), words, end)
            found = [[*level, 0] for level in trace.row().ids[form]]  # the stop is reserved
            assert found[: pair.levels or None] == expected, form


@every_pair
@few
@given(length=st.integers(1, 20), seed=st.integers(0, 1000))
def test_a_program_depends_on_what_the_task_depends_on(pair, length, seed):
    convention = NEEDS.get(pair.task.name, lambda needs, trace, number: needs)
    for sample, _, trace in _rows(pair, length, seed):
        needs = pair.task.depends_on(sample)[0]
        for number, reads in enumerate(trace.row().reads):
            if number not in trace.given:
                expected = set(needs[trace.end + number].nonzero()[:, 0].tolist())
                assert set(reads) == convention(expected, trace, number)


def test_a_program_of_operands_in_reverse_adds_like_the_task():
    pair = Pair(tasks.Addition(operand_order="reversed"), ReversedAddition())
    for _, words, trace in _rows(pair, 6, 0):
        assert [*trace.words, "."] == words


# shipped programs


def _merge(left: list[str], right: list[str]) -> list[str]:
    return sorted(left + right)


def _insertion(item: list[str], items: list[str]) -> list[str]:
    return sorted(item + items)


def _polynomial(x: list[str], coefficients: list[str]) -> list[str]:
    at, numbers = int(x[0]), [int(word) for word in coefficients]
    prefixes = [numbers[: size + 1] for size in range(len(numbers))]
    return [str(sum(c * at**power for power, c in enumerate(reversed(prefix))) % 7) for prefix in prefixes]


def _run_length_encode(symbols: list[str]) -> list[str]:
    answer = []
    for symbol, run in groupby(symbols):
        for number, _ in enumerate(run):
            answer += [*([symbol] if number % 9 == 0 else []), str(number % 9 + 1)]
    return answer


def _run_length_decode(ruler: list[str], runs: list[str]) -> list[str]:
    return [symbol for symbol, size in zip(runs[::2], runs[1::2], strict=True) for _ in range(int(size))]


def _string_search(pattern: list[str], text: list[str]) -> list[str]:
    answer: list[str] = []
    for start in range(len(text) + 1):
        answer.append("^" if start == 0 else ">")
        same = 0
        while same < len(pattern) - 1 and text[start + same : start + same + 1] == [pattern[1 + same]]:
            same += 1
        answer += text[start : start + same]
        if same == len(pattern) - 1 or start + same < len(text):
            answer += ["#" if same == len(pattern) - 1 else "!", *["<"] * same]
        else:
            break
    return answer


def _prompt_automaton(table: list[str], inputs: list[str]) -> list[str]:
    goes = {table[at]: table[at + 1 : at + 3] for at in range(0, len(table), 3)}
    states = [table[0]]
    for symbol in inputs:
        states.append(goes[states[-1]][int(symbol)])
    return states


def _tree_bfs(table: list[str]) -> list[str]:
    children = {table[at]: [name for name in table[at + 1 : at + 3] if name != "-"] for at in range(0, len(table), 3)}
    answer, queue = [], deque(table[:1])
    while queue:
        node = queue.popleft()
        queue.extend(children[node])
        answer += [node, *children[node], node]
    return answer


def _long_division(dividend: list[str], divisor: list[str]) -> list[str]:
    by, answer = int(divisor[0]), []
    for size in range(1, len(dividend) + 1):
        quotient, remainder = divmod(int("".join(dividend[:size])), by)
        answer += [str(quotient % 10), f"{remainder}'"]
    assert "".join(answer[::2]) == str(int("".join(dividend)) // by).zfill(len(dividend))
    return answer


def _stack_machine(numbers: list[str], operators: list[str]) -> list[str]:
    stack = [int(number) for number in numbers]
    tops = [stack[-1]]
    for operator in operators:
        top = stack.pop()
        if operator == "~":
            stack.append(-top)
        else:
            below = stack.pop()
            stack.append(eval(f"{below} {operator} ({top})"))
        tops.append(stack[-1] % 10)
    return [str(top) for top in tops]


def _translate(table: list[str], text: list[str]) -> list[str]:
    images = dict(zip(table[::2], table[1::2], strict=True))
    return [word for symbol in text for word in (symbol, images[symbol])]


SOLVERS: dict[Program, Callable[..., list[str]]] = {
    Merge(): _merge,
    Insertion(): _insertion,
    Polynomial(): _polynomial,
    RunLengthEncode(): _run_length_encode,
    RunLengthDecode(): _run_length_decode,
    StringSearch(): _string_search,
    PromptAutomaton(): _prompt_automaton,
    TreeBfs(): _tree_bfs,
    LongDivision(): _long_division,
    StackMachine(): _stack_machine,
    Translate(): _translate,
}
every_program = pytest.mark.parametrize("program", SOLVERS, ids=lambda program: program.name)


def test_every_shipped_program_is_tested():
    shipped = {cls for cls in entries("task").values() if issubclass(cls, Program)}
    assert {type(program) for program in SOLVERS} == shipped
    assert len(shipped) >= 9


@every_program
@few
@given(length=st.integers(1, 60), seed=st.integers(0, 10_000))
def test_a_program_answers_as_an_independent_solver(program, length, seed):
    regions = program.prompt(random.Random(seed), length)
    trace = program.trace(regions)
    words = {name: list(words) for name, words in regions.items()}
    assert trace.answer == SOLVERS[program](**words)
    assert program.read_prompt(trace.words[: trace.end]) == words
    assert program.prompt_length([program._numbers[word] for word in trace.words[: trace.end]]) == length


@every_program
@pytest.mark.parametrize("length", [1, 2, 5, 12])
def test_no_sample_is_longer_than_promised(program, length):
    for seed in range(30):
        trace = program.trace(program.prompt(random.Random(seed), length))
        assert len(trace.words) + 1 <= program.max_tokens(length)
        assert len(trace.answer) + 1 <= program.max_answer(length)


def test_no_search_is_longer_than_promised():
    program = StringSearch()
    for length in range(1, 7):
        for text in product("ab", repeat=length):
            for size in range(1, min(3, length) + 1):
                trace = program.trace({"pattern": ["^", *text[:size]], "text": text})
                assert len(trace.answer) + 1 <= program.max_answer(length)
                assert len(trace.words) + 1 <= program.max_tokens(length)


def _traces(program: Program, count: int = 300) -> Iterator[Trace]:
    for seed in range(count):
        rng = random.Random(seed)
        yield program.trace(program.prompt(rng, rng.randint(2, 14)))


def conflicts(traces: Iterator[Trace]) -> list[object]:
    """Return what was read with two different outcomes: other words, other moves, or other IDs.

    Of IDs the fields count, and whether a level has the reserved one: both must be known before the next step reads.
    """
    known: dict[object, object] = {}
    found = []
    for trace in traces:
        for number, (seen, outcome) in enumerate(trace.steps()):
            behind = trace.aligned[number + 1] if number + 1 < len(trace.aligned) else {}
            ids = {level: at if level.endswith(" field") else at == 0 for level, at in behind.items()}
            for part, what in (("outcome", outcome), *ids.items()):
                if known.setdefault((seen, part), what) != what:
                    found.append((seen, part, known[seen, part], what))
    return found


def blind_spots(traces: Iterator[Trace]) -> list[object]:
    """Return all that looks alike to a model, yet has two outcomes."""
    known: dict[object, object] = {}
    found = []
    for trace in traces:
        for view, outcome in trace.views():
            if known.setdefault(view, outcome) != outcome:
                found.append((view, known[view], outcome))
    return found


@every_program
def test_equal_reads_have_equal_outcomes(program):
    assert conflicts(_traces(program)) == []


@every_program
def test_a_model_sees_all_that_a_step_needs(program):
    assert blind_spots(_traces(program)) == []


@every_program
def test_every_step_reads_where_the_token_before_points(program):
    assert [trace.strays for trace in _traces(program, 50) if trace.strays] == []


@dataclass(frozen=True, kw_only=True)
class Cheat(Program):
    """Counts in a Python variable, reads ahead, and writes quotients that look like remainders."""

    alphabet = ("a", "0", "1")

    def prompt(self, rng, length):
        return {"symbols": "a" * length}

    def run(self, symbols, write):
        number = 0
        while not symbols.at_end:
            write(str(int(number % 3 == 2)))
            number += 1
            symbols.step()
            if not symbols.at_end:
                symbols.step()
                symbols.read()


def test_the_checks_notice_hidden_state_and_reading_ahead():
    assert conflicts(_traces(Cheat(), 5))
    assert blind_spots(_traces(Cheat(), 5))
    assert any(trace.strays for trace in _traces(Cheat(), 5))


@every_program
def test_ids_of_prompt_alone_and_of_whole_samples_agree(program):
    sample = draw(program, [1, 6, 9, 20])
    inside = torch.arange(sample.tokens.shape[1]) < sample.prompt_tokens[:, None]
    for form in ("published", "aligned"):
        whole, alone = program.coupling(sample, form), program.coupling(sample.prompt_only(), form)
        assert torch.equal(whole * inside[:, None], alone)
        assert not whole[:, :, -1].any() or int(sample.num_tokens.max()) < sample.tokens.shape[1]


@every_program
def test_sparsity_does_not_grow(program):
    for length in (6, 12, 40):
        most = {max(len(set(reads)) for reads in row.reads) for row in program._looks(length)}
        assert max(most) == program.sparsity(length) == program.most_reads


@every_program
def test_samples_grow_linearly(program):
    rows = [program.row(random.Random(0), length) for length in (300, 600)]
    short, long = (len(row.prompt) + len(row.answer) for row in rows)
    assert long < 20 * 600
    assert long < 2.2 * short


@every_program
def test_worked_examples_of_docstrings(program):
    line = type(program).__doc__.splitlines()[0]
    prompt, answer = (" ".join(side.split()) for side in line[line.index(".  ") + 3 :].split("  ->  "))
    trace = program.trace(program.read_prompt(prompt.split()))
    assert [*trace.answer, "."] == answer.split()


def _code_lines(source: str) -> Iterator[tuple[str, int]]:
    """Count the lines of each class without docstrings and blank lines."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            texts = [one for one in ast.walk(node) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
            skipped = {line for one in texts for line in range(one.lineno, one.end_lineno + 1)}
            own = [number for number in range(node.lineno, node.end_lineno + 1) if number not in skipped]
            yield node.name, sum(bool(lines[number - 1].strip()) for number in own)


@pytest.mark.parametrize(
    "path", ["examples/programs.py", "src/longreach/tasks/programs.py", "src/longreach/tasks/lookups.py"]
)
def test_programs_are_short(path):
    sizes = dict(_code_lines((ROOT / path).read_text()))
    assert {name: size for name, size in sizes.items() if size > 20} == {}
    assert len(sizes) >= 4


# laws of the prompts


def test_merges_interleave_and_searches_find_matches_at_every_length():
    for length in (8, 100):
        switches, early, late = 0, 0, 0
        for seed in range(60):
            rng = random.Random(seed)
            trace = Merge().trace(Merge().prompt(rng, length))
            sides = [dict(step) for step in trace.aligned]
            moved = ["left" if b["left"] > a["left"] else "right" for a, b in pairwise(sides)]
            switches += len([0 for a, b in pairwise(moved) if a != b])
            answer = StringSearch().trace(StringSearch().prompt(rng, length)).answer
            half = len(answer) // 2
            early += "#" in answer[:half]
            late += "#" in answer[half:]
        assert switches > 120  # two or more in a prompt
        assert min(early, late) > 30


def test_a_redrawn_prompt_keeps_the_law_of_tables():
    program = PromptAutomaton(states=6)
    sample = draw(program, [3] * 40)
    again = program.redraw(sample, tasks.base.Draws(torch.arange(40)))
    assert not torch.equal(again.tokens, sample.tokens)
    for row in range(40):
        assert program.solve(again, row) == answer_of(sample, row)
        table = program.words(again.tokens[row, :18].tolist())
        for field in range(3):
            assert sorted(table[field::3]) == list("abcdef")


# what is refused


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (lambda: Polynomial(modulus=9), "modulus must be a prime in 3..97, got 9"),
        (lambda: PromptAutomaton(states=1), "states must be at least 2, got 1"),
        (lambda: Translate(symbols=30), "symbols must be at most 26, got 30"),
    ],
)
def test_impossible_settings_are_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        settings()


def test_impossible_prompts_are_refused():
    with pytest.raises(BadInput, match=r"length must be in 1\.\.9"):
        TreeBfs(num_names=9).check_length(10)
    for program, prompt in ((Merge(), "a b ; c"), (Translate(), "a A b ; a ;"), (LongDivision(), "7 / 4 2")):
        with pytest.raises(BadInput, match="is no prompt"):
            program.parse(prompt)


@dataclass(frozen=True, kw_only=True)
class FindsTooSoon(Program):
    alphabet = ("a",)

    def prompt(self, rng, length):
        return {"symbols": "a" * length}

    def run(self, symbols, write):
        symbols.find(write.last())


def test_a_find_before_the_first_word_names_the_line():
    with pytest.raises(BadInput, match=r"symbols finds no word before the first is written .*test_programs.py:\d+"):
        FindsTooSoon().trace({"symbols": ["a"]})


@dataclass(frozen=True, kw_only=True)
class StepsEarly(Program):
    alphabet = ("a",)

    def prompt(self, rng, length):
        return {"symbols": "a" * length}

    def run(self, symbols, write):
        while not symbols.at_end:
            word = symbols.read()
            symbols.step()
            write(word)


def test_a_move_between_read_and_write_belongs_to_the_written_word():
    trace = StepsEarly().trace({"symbols": ["a", "a"]})
    assert trace.moves == [[], [("symbols", "step 1")], [("symbols", "step 1")]]
    assert [step["symbols"] for step in trace.aligned] == [1, 2, 3]
