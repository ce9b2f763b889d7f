"""`check` refuses broken tasks with one line each, and every shipped task passes."""

import itertools
import json
import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from catalogue import TASKS, label
from rich.console import Console

import longreach as lr
from longreach.api import (
    BadInput,
    IndexHints,
    Level,
    PlainTask,
    Program,
    Region,
    Row,
    Span,
    Task,
    VariableAssignment,
    build_sample,
    join,
)
from longreach.cli.main import main
from longreach.cli.run import _check_tasks
from longreach.config.registry import entries
from longreach.evaluation import make_card
from longreach.evaluation.shortcuts import find_shortcuts, growing_shortcut
from longreach.tasks.checking import check_task, is_foreign, legal_lengths_within
from longreach.tasks.checking.drawn import global_generators


def check(task, lengths="1..12", samples=48):
    """Return what is found, without the note on the type checks of these tests, which use Python's random."""
    found = lr.check(task, lengths=lengths, samples=samples)
    return replace(found, notes=[note for note in found.notes if "the state of Python's random" not in note])


# the shipped tasks

EXPECTED = {"given": "the ID of the query is part of the answer, given away: the field's docstring says so"}
"""By `query_id`: why a shipped task fails."""


@pytest.mark.parametrize("task", TASKS, ids=label)
def test_every_shipped_task_passes(task):
    found = check_task(task, legal_lengths_within(task, Span(1, 10)), 16)
    assert found.samples == 16
    if getattr(task, "query_id", "") in EXPECTED:
        assert all("IDs must not tell the answer" in fault for fault in found.faults)
        assert found.faults
    else:
        assert found.faults == []


def test_text_is_not_checked_for_it_has_no_right_answers():
    with pytest.raises(BadInput, match="text is open-ended"):
        lr.check("text")


# tasks with one mistake each


@dataclass(frozen=True, kw_only=True)
class Digits(Task):
    """Copy the digits.  3 1 4 =  ->  3 1 4 ."""

    vocabulary = ("_", "=", ".", *"0123456789")
    stop_token = 2
    coupling_levels = (Level("place"), Level("half", size=2))

    def max_tokens(self, length):
        return 2 * length + 2

    def digits(self, draws, max_length):
        return 3 + draws.below("digits", 10, max_length)

    def sample(self, length, draws, max_length):
        digits = self.digits(draws, max_length)
        tokens = join([(digits, length), (1, 1), (digits, length), (2, 1)], self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens=length + 1, num_tokens=2 * length + 2)

    def solve(self, sample, row):
        return [*sample.tokens[row, : sample.prompt_tokens[row] - 1].tolist(), 2]

    def prompt_length(self, tokens):
        return len(tokens) - 1

    def coupling(self, sample, form):
        index, n = torch.arange(sample.tokens.shape[1]), sample.length[:, None]
        place = torch.where(index <= n, index + 1, index - n).masked_fill(index > 2 * n, 0)
        half = (1 + (index > n).long()).masked_fill(index >= sample.num_tokens[:, None], 0)
        return torch.stack([place, half], dim=1)

    def sparsity(self, length):
        return 1

    def depends_on(self, sample):
        index, n = torch.arange(sample.tokens.shape[1]), sample.length[:, None, None]
        return (index[:, None] - index == n + 1) & sample.answer[:, :, None]


def change(sample, **fields):
    return replace(sample, **fields)


class Broken:
    """Each class has one mistake; its docstring is a pattern of the line that names it."""

    class SortsPadding(Digits):
        """SortsPadding: sample \\d+ of length \\d+, '[\\d ]+ =': the sampler answers '[\\d ]+ \\.', solve answers '"""

        def sample(self, length, draws, max_length):
            digits = self.digits(draws, max_length)
            parts = [(digits, length), (1, 1), (digits.sort(1).values, length), (2, 1)]
            return build_sample(join(parts, self.max_tokens(max_length)), length, length + 1, 2 * length + 2)

        def solve(self, sample, row):
            return [*sorted(sample.tokens[row, : sample.prompt_tokens[row] - 1].tolist()), 2]

    class SolvesByReading(Digits):
        """solve answers '.*' from the prompt alone: it reads the answer itself"""

        def solve(self, sample, row):
            return sample.tokens[row][sample.answer[row]].tolist()

    class RefusesItsPrompts(Digits):
        """solve refuses a drawn prompt: three digits only"""

        def solve(self, sample, row):
            if sample.length[row] != 3:
                raise BadInput("three digits only")
            return super().solve(sample, row)

    class WrongPromptLength(Digits):
        """sample 0 of length 1, '\\d =': prompt_length says 2, the length is 1: define prompt_length"""

        def prompt_length(self, tokens):
            return len(tokens)

    class ParsesBackwards(Digits):
        """parse reads it as '="""

        def parse(self, text):
            return super().parse(text)[::-1]

    class DependsOnTheWidth(Digits):
        """drawn with max_length=15 it is '.*': a sample must not depend on its batch or on max_length"""

        def digits(self, draws, max_length):
            return super().digits(draws, max_length).flip(1)

    class DependsOnTheBatch(Digits):
        """drawn in reverse order it is"""

        def digits(self, draws, max_length):
            return super().digits(draws, max_length).cumsum(0) % 10 + 3

    class NoStop(Digits):
        """answer '[\\d ]+' must end with the stop token '.' and have it nowhere else"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, tokens=torch.where(made.tokens == 2, 3, made.tokens))

    class StopsTwice(Digits):
        """answer '\\. .*\\.' must end with the stop token"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, tokens=made.tokens.scatter(1, made.prompt_tokens[:, None], 2))

    class SeveralTokens(Digits):
        """has several tokens: define stop_token"""

        stop_token = None

        def max_answer(self, length):
            return length + 1

    class StopOutside(Digits):
        """stop_token must be in 1..12, got 13"""

        stop_token = 13

    class TwoWordsAlike(Digits):
        """the vocabulary has '0' twice"""

        vocabulary = ("_", "=", ".", "0", *"0123456789")

    class Blank(Digits):
        """token 1 of the vocabulary must be a word without blanks, got ' '"""

        vocabulary = ("_", " ", ".", *"0123456789")

    class OutsideTheVocabulary(Digits):
        """tokens must be in 0..12, the vocabulary \\(.*<13>"""

        def digits(self, draws, max_length):
            return 4 + draws.below("digits", 10, max_length)

    class PaddingInside(Digits):
        """padding \\(token 0\\) stands before num_tokens"""

        def digits(self, draws, max_length):
            return draws.below("digits", 10, max_length)

    class TokensBehind(Digits):
        """tokens stand behind num_tokens, where padding \\(0\\) must be"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, tokens=made.tokens.clamp(min=1))

    class AnswerTooEarly(Digits):
        """`answer` must be true from prompt_tokens to num_tokens"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, answer=made.answer | (torch.arange(made.tokens.shape[1]) == length[:, None]))

    class GivenInThePrompt(Digits):
        """`given` must lie inside `answer`"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, given=(torch.arange(made.tokens.shape[1]) < 1).expand(made.given.shape))

    class GivenUnsaid(Digits):
        """tokens are given, but has_given is False"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, given=made.answer)

    class OtherLength(Digits):
        """`length` must be the length that was asked for"""

        def sample(self, length, draws, max_length):
            return change(super().sample(length, draws, max_length), length=length + 1)

    class NoAnswer(Digits):
        """num_tokens must be above prompt_tokens"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, prompt_tokens=made.num_tokens)

    class TooLong(Digits):
        """num_tokens must be at most max_tokens\\(length\\) .*num_tokens=8"""

        def max_tokens(self, length):
            return 2 * length + 2 - (length == 3)

    class AnswerTooLong(Digits):
        """more tokens than max_answer\\(length\\)"""

        def max_answer(self, length):
            return length

    class Narrow(Digits):
        """`tokens` of a batch of 48 samples up to length 12 must have the shape \\(48, 27\\)"""

        def max_tokens(self, length):
            return 2 * length + 3

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            names = ("tokens", "answer", "given")
            return change(made, **{name: getattr(made, name)[:, :-1] for name in names})

    class Small(Digits):
        """`tokens` .* of torch.int64, got \\(48, 26\\) of torch.int32"""

        def sample(self, length, draws, max_length):
            made = super().sample(length, draws, max_length)
            return change(made, tokens=made.tokens.int())

    class NoSample(Digits):
        """sample returns a Tensor, not a Sample"""

        def sample(self, length, draws, max_length):
            return super().sample(length, draws, max_length).tokens

    class OneLevel(Digits):
        """published coupling must have the shape \\(48, 2, 26\\)"""

        def coupling(self, sample, form):
            return super().coupling(sample, form)[:, :1]

    class Gap(Digits):
        """aligned coupling: IDs of level place must count from 1 without gaps \\(IDs 1 3"""

        def coupling(self, sample, form):
            ids = super().coupling(sample, form)
            return torch.where((ids > 1) & (form == "aligned"), ids + 1, ids)

    class FromTwo(Digits):
        """published coupling: IDs of level place must count from 1"""

        def coupling(self, sample, form):
            ids = super().coupling(sample, form)
            return torch.where((ids > 0) & (torch.tensor([[0], [1]]) == 0), ids + 1, ids)

    class ThreeHalves(Digits):
        """level half has IDs up to 2"""

        def coupling(self, sample, form):
            ids = super().coupling(sample, form).clone()
            ids[:, 1, 0] = 3
            return ids

    class PaddingWithIds(Digits):
        """padding has an ID: it must be 0"""

        def coupling(self, sample, form):
            return super().coupling(sample, form).clamp(min=1)

    class IdsTellTheAnswer(Digits):
        """the ID of token \\d+ of the prompt is \\d beside its answer '.*' and \\d without it: IDs must not tell"""

        def coupling(self, sample, form):
            ids = super().coupling(sample, form)
            first = sample.tokens.gather(1, sample.prompt_tokens[:, None])[:, :, None] > 7
            level = torch.tensor([0, 1])[:, None]
            return torch.where(first & (ids > 0) & (level == 1), 2, ids)

    class NoRule(Digits):
        """of the answer \\(coupling_by_rule\\) is \\d beside its answer '.*' and 0 without it"""

        def coupling(self, sample, form):
            return super().coupling(sample, form) * (sample.tokens > 0)[:, None]

    class IdsDependOnTheWidth(Digits):
        """beside longer samples and \\d beside samples of its length: IDs must not depend on the batch"""

        def coupling(self, sample, form):
            ids = super().coupling(sample, form)
            return torch.where((ids > 0) & (torch.tensor([[0], [1]]) == 1) & (ids.shape[2] > 9), 1, ids)

    class Foresight(Digits):
        """token \\d+ depends on token \\d+, which does not stand before it"""

        def depends_on(self, sample):
            return super().depends_on(sample) | (torch.eye(sample.tokens.shape[1]) > 0) & sample.answer[:, :, None]

    class PromptDepends(Digits):
        """token \\d+ has dependencies, but is not predicted"""

        def depends_on(self, sample):
            return (
                super().depends_on(sample)
                | torch.ones(sample.tokens.shape[1] ** 2).view(-1, sample.tokens.shape[1]).tril(-1).bool()
            )

    class NotSoSparse(Digits):
        """depends on 2 tokens, '\\d .*', but sparsity says at most 1"""

        def depends_on(self, sample):
            needs = super().depends_on(sample)
            return needs | needs.roll(1, 2).tril(-1) & sample.answer[:, :, None]

    class GlobalTorch(Digits):
        """drawn twice .*: take all random numbers from `draws` \\(.*torch's global generator was used\\)"""

        def digits(self, draws, max_length):
            return torch.randint(3, 13, (len(draws.key), max_length))

    class GlobalNumpy(Digits):
        """drawn twice .*: take all random numbers from `draws` \\(.*numpy.random was used\\)"""

        def digits(self, draws, max_length):
            return torch.from_numpy(np.random.randint(3, 13, (len(draws.key), max_length)))

    class GlobalPython(Digits):
        """drawn twice .*: take all random numbers from `draws` \\(Python's random was used\\)"""

        def digits(self, draws, max_length):
            return super().digits(draws, max_length) * 0 + random.randrange(3, 13)

    class Seeds(Digits):
        """sample uses .*torch's global generator: take all random numbers from `draws`"""

        def digits(self, draws, max_length):
            torch.manual_seed(0)
            return super().digits(draws, max_length)

    class Counts(Digits):
        """drawn twice it is '.*' and '.*': take all random numbers from `draws`"""

        counter = itertools.count()

        def digits(self, draws, max_length):
            return (super().digits(draws, max_length) + next(self.counter)) % 10 + 3

    class Raises(Digits):
        """Raises: KeyError in .*test_check_tasks.py:\\d+ \\(return \\{\\}\\[max_length\\]\\): 12"""

        def digits(self, draws, max_length):
            return {}[max_length]

    class RaisesInTorch(Digits):
        """RaisesInTorch: RuntimeError in .*test_check_tasks.py:\\d+ \\(return torch.cat"""

        def coupling(self, sample, form):
            return torch.cat([sample.tokens, sample.tokens[:1]], dim=1)

    class GlobalPythonInARow(PlainTask):
        """drawn twice .*: take all random numbers from `rng` \\(Python's random was used\\)"""

        alphabet = tuple("ab")

        def row(self, rng, length):
            symbols = random.choices("ab", k=length)
            return Row([*symbols, "="], symbols)


BROKEN = [one for one in vars(Broken).values() if isinstance(one, type)]


def test_a_right_task_passes_and_is_described():
    found = check(Digits())
    assert found.faults == found.warnings == found.notes == []
    assert found.passed
    assert found.samples == 48
    assert str(found).startswith(f"{__name__}.Digits passes: 48 samples of lengths 1..12\nshortcut: length 1: ")


@pytest.mark.parametrize("task", BROKEN, ids=lambda task: task.__name__)
def test_a_mistake_is_named(task):
    found = check(task())
    assert not found.passed
    assert any(re.search(task.__doc__, fault) for fault in found.faults), found.faults
    assert str(found).startswith("failed: ")
    assert not any("\n" in fault for fault in found.faults)
    assert found.faults[0].startswith(f"{__name__}.Broken.{task.__name__}: ")


def test_the_global_generators_stay_as_they_were():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    with global_generators(1) as used:
        random.random(), np.random.rand(), torch.rand(1)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert used == {"Python's random", "numpy.random", "torch's global generator"}


def test_a_class_that_is_no_dataclass_is_named_at_once():
    class Forgot(Digits):
        symbols: int = 5

    for make in (Forgot, lambda: lr.check(Forgot())):
        with pytest.raises(
            BadInput, match=r"Forgot lacks @dataclass\(frozen=True, kw_only=True\), so its field symbols"
        ):
            make()


def test_show_names_the_line_of_an_error_too():
    with pytest.raises(
        BadInput, match=r"Raises: KeyError in .*test_check_tasks.py:\d+ \(return \{\}\[max_length\]\): 3"
    ):
        lr.show(Broken.Raises(), 3)


def test_what_a_task_does_not_state_is_noted():
    class Bare(PlainTask):
        alphabet = tuple("ab")

        def row(self, rng, length):
            symbols = rng.choices("ab", k=length)
            return Row([*symbols, "="], symbols)

    found = check(Bare())
    assert found.faults == []
    assert [note.split(":")[0] for note in found.notes] == ["solve is not defined", "depends_on is not defined"]


def test_arguments_that_do_not_fit_are_refused():
    for options, line in (
        ({"samples": 3}, "samples must be at least 16, got 3"),
        ({"lengths": "9..1"}, "lengths: a range must not fall"),
        ({"lengths": "1..3", "task": "planted", "k": 5}, "no length in 1..3 is possible: planted: length must be"),
    ):
        task = {"name": options.pop("task", "copy"), **({"k": options.pop("k")} if "k" in options else {})}
        with pytest.raises(BadInput, match=line):
            lr.check(task, **options)


# programs


def check_few(program):
    return check(program, lengths="1..5", samples=24)


class Running(Program):
    """Write the parity of the bits so far."""

    alphabet = ("0", "1")

    def prompt(self, rng, length):
        return {"bits": rng.choices("01", k=length)}

    def run(self, bits, write):
        while not bits.at_end:
            write(str(int(bits.read()) ^ int(write.last() or 0)))
            bits.step()


class Hides(Running):
    def run(self, bits, write):
        parity = 0
        while not bits.at_end:
            parity ^= int(bits.read())
            write(str(parity))
            bits.step()


class HidesMoves(Running):
    def run(self, bits, write):
        counter = 0
        while not bits.at_end:
            write(bits.read())
            counter += 1
            bits.step()
            if counter == 3 and not bits.at_end:
                write("1")
                bits.step()


class Strays(Running):
    """Find a mark and read behind it, without writing first."""

    alphabet = ("0", "1", "x")

    def prompt(self, rng, length):
        bits = rng.choices("01", k=length + 1)
        bits.insert(rng.randrange(length), "x")
        return {"bits": bits}

    def run(self, bits, write):
        while bits.read() != "x":
            bits.step()
        bits.step()
        write(bits.read())


class Unreadable(Running):
    alphabet = ("0", "1", "+")
    regions: ClassVar = {"bits": Region(close=""), "others": Region(opening="+")}

    def prompt(self, rng, length):
        return {"bits": rng.choices("01+", k=length), "others": ["1"]}

    def run(self, bits, others, write):
        write(others.read())


class Fails(Running):
    def run(self, bits, write):
        return [][0]


def test_programs_whose_state_is_hidden_are_refused():
    assert check_few(Running()).faults == []
    (fault,) = check_few(Hides()).faults
    assert re.search(
        r"after reading '[01;]' \(bits\).* the program once writes '.' and moves bits step 1 \(in '[01 ]+; = [01 ]*'\)"
        r" and once writes '.' and moves bits step 1 \(in '[01 ]+; = [01 ]*'\): .* not from Python variables",
        fault,
    )
    (fault,) = check_few(HidesMoves()).faults
    assert "after reading" in fault


def test_programs_that_read_where_no_id_leads_get_advice():
    found = check_few(Strays())
    assert any("write what is looked for first, then find it" in note for note in found.notes)
    assert any("bits reads at a place that no token before carries" in note for note in found.notes)


def test_programs_whose_prompts_cannot_be_read_back_are_refused():
    assert any("region bits of" in fault or "is no prompt" in fault for fault in check_few(Unreadable()).faults)


def test_an_error_in_a_program_names_its_line():
    assert re.search(
        r"Fails: IndexError in .*test_check_tasks.py:\d+ \(return \[\]\[0\]\)", check_few(Fails()).faults[0]
    )


# shortcuts


@dataclass(frozen=True, kw_only=True)
class Commonest(PlainTask):
    """The answer is a symbol that a long prompt repeats."""

    alphabet = tuple("abcdefghijklmnopqrst")
    repeats: bool = True

    def row(self, rng, length):
        answer = rng.choice(self.alphabet)
        others = rng.choices(self.alphabet, k=length)
        prompt = [*others, *([answer] * (length // 4 if self.repeats else 0))]
        rng.shuffle(prompt)
        return Row([*prompt, "="], [answer])


def test_answers_that_become_easier_to_guess_are_named():
    found = lr.check(Commonest(), lengths="2..40", samples=128)
    assert found.passed
    assert "answers become easier to guess with length: the most frequent prompt token is right in" in found.warnings[0]
    assert found.shortcuts[-1].length == 40
    assert found.shortcuts[-1].accuracy > 0.9
    assert found.shortcuts[-1].low <= found.shortcuts[-1].accuracy <= found.shortcuts[-1].high
    assert found.shortcuts[-1].chance == pytest.approx(1 / 20)
    assert lr.check(Commonest(repeats=False), lengths="2..40", samples=128).warnings == []


def test_the_chain_of_variable_assignment_is_found_by_counting_names():
    leaks = find_shortcuts(VariableAssignment(distractors="pointers", into_chain=0.25), [4, 12, 100], 512)
    assert re.search("the most frequent prompt token|prompt token of frequency rank", growing_shortcut(leaks))
    for task in (VariableAssignment(), VariableAssignment(end="marked", scratchpad=False)):
        found = find_shortcuts(task, [4, 12, 100], 512)
        assert growing_shortcut(found) is None
        assert found[-1].accuracy < 0.05


def test_each_trivial_predictor_is_found():
    """Tasks with one letter as their answer, each found by one predictor."""

    class One(PlainTask):
        alphabet = tuple("abcdefgh")
        answer = staticmethod(lambda symbols: "")

        def row(self, rng, length):
            symbols = rng.choices(self.alphabet, k=length)
            return Row([*symbols, "="], list(self.answer(symbols)))

    for answer, predictor in (
        (lambda symbols: "a" if symbols[0] != "b" else "b", "the most frequent answer token"),
        (lambda symbols: symbols[2], "prompt token 3"),
        (lambda symbols: symbols[-2], "prompt token 3 from the end"),
        (sorted, "the token before"),
        (lambda symbols: Counter(symbols).most_common(1)[0][0], "the most frequent prompt token"),
        (lambda symbols: Counter(symbols).most_common(2)[1][0], "prompt token of frequency rank 2"),
        (lambda symbols: Counter(symbols).most_common(3)[2][0], "prompt token of frequency rank 3"),
    ):
        task = type("Letters", (One,), {"answer": staticmethod(answer)})()
        (found,) = find_shortcuts(task, [20], 128)
        assert found.predictor == predictor
        assert found.accuracy > 0.3
        assert found.samples == 128


# runs and the command line

TINY = {
    "model": {"layers": 1, "width": 16, "heads": 2},
    "train": {"lengths": (1, 6), "steps": 2, "batch_size": 4},
    "evaluate": {"lengths": [4], "samples": 4, "free_samples": 2},
    "device": "cpu",
}


def test_a_run_of_a_broken_task_is_refused_before_training(tmp_path):
    with pytest.raises(BadInput, match=r"SortsPadding: sample .* the sampler answers .*, solve answers") as error:
        lr.run(task=Broken.SortsPadding(), out=tmp_path / "run", **TINY)
    assert len(error.value.lines) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("task", "check_it", "record", "card"),
    [
        (Digits(), True, "passed", "passed"),
        (Broken.SortsPadding(), False, "skipped", "skipped: nobody checked this task"),
    ],
)
def test_a_run_records_the_check(tmp_path, task, check_it, record, card):
    lr.run(task=task, out=tmp_path / "run", check=check_it, **TINY)
    folder = lr.RunFolder(tmp_path / "run")
    assert folder.info().task_check == record
    assert json.loads((tmp_path / "run" / "run.json").read_text())["task_check"] == record
    assert folder.card().task_check == card


def test_a_task_inside_another_is_from_outside_too():
    assert is_foreign(Digits())
    assert make_card(lr.Copy(), lr.Sequential(), (1, 2), lr.EvalConfig()).task_check == "a task of longreach"
    assert is_foreign(IndexHints(of=Digits(), num_hints=50))
    assert is_foreign(lr.Mixture(of=(lr.Copy(), Digits())))
    assert not any(is_foreign(task) for task in TASKS)
    assert all(not is_foreign(task()) for task in entries("task").values())


MINE = """
from dataclasses import dataclass
from longreach.api import Task, build_sample, join

@dataclass(frozen=True, kw_only=True)
class Mine(Task):
    "Sort the digits."
    vocabulary = ("_", "=", ".", *"0123456789")
    stop_token = 2
    careful: bool = False

    def max_tokens(self, length):
        return 2 * length + 2

    def sample(self, length, draws, max_length):
        digits = 3 + draws.below("digits", 10, max_length)
        beyond = (digits * 0 + 1).cumsum(1) > length[:, None]
        ordered = digits.masked_fill(beyond & self.careful, 99).sort(1).values
        tokens = join([(digits, length), (1, 1), (ordered, length), (2, 1)], self.max_tokens(max_length))
        return build_sample(tokens, length, length + 1, 2 * length + 2)

    def solve(self, sample, row):
        return [*sorted(sample.tokens[row, : sample.prompt_tokens[row] - 1].tolist()), 2]

    def prompt_length(self, tokens):
        return len(tokens) - 1
"""
RECIPE = """
task: {name: my_sorting.Mine}
model: {layers: 1, width: 16, heads: 2}
train: {lengths: 1..6, steps: 2, batch_size: 4}
evaluate: {lengths: [4], samples: 4, free_samples: 2}
variants: {counting: {ids: sequential}, randomized: {ids: {name: randomized, max_id: 40}}}
"""


def test_the_command_line_checks_and_refuses(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_sorting.py").write_text(MINE)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    command = ["check", "my_sorting.Mine", "--lengths", "1..12", "--samples", "48"]
    assert main(command) == 2
    line, _ = capsys.readouterr().err.splitlines()
    assert re.search(r"my_sorting.Mine: sample \d+ of length .*: the sampler answers '.*', solve answers '.*'", line)
    assert main([*command, "--json"]) == 2
    facts = json.loads(capsys.readouterr().out)
    assert not facts["passed"]
    assert "the sampler answers" in facts["faults"][0]
    assert "a sample must not depend on its batch" in facts["faults"][1]
    assert main([*command, "--task.careful", "true"]) == 0
    assert "my_sorting.Mine passes: 48 samples of lengths 1..12" in capsys.readouterr().out
    run = ["run", "recipe.yaml", "--device", "cpu", "--json"]
    assert main([*run, "--out", "refused"]) == 2
    assert "the sampler answers" in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()
    assert main([*run, "--out", "skipped", "--no-check", "--only", "counting"]) == 0
    assert lr.RunFolder(tmp_path / "skipped/counting/seed-0").info().task_check == "skipped"
    recipe = lr.load_recipe("recipe.yaml", {"task": {"careful": True}})
    checked = _check_tasks(recipe, tmp_path / "new", False, ["counting", "randomized"], False, Console(quiet=True))
    assert checked == {"counting": "passed", "randomized": "passed"}
    begun = _check_tasks(recipe, tmp_path / "skipped", True, ["counting", "randomized"], True, Console(quiet=True))
    assert begun == {"randomized": "skipped"}  # the other one is resumed as it was started


def test_hints_of_a_prompt_may_be_typed():
    task = IndexHints(num_hints=50)
    tokens = task.parse("#4 1 #7 0 #8 ; #2 =")
    assert task.words(tokens) == ["#4", "1", "#7", "0", "#8", ";", "#2", "="]
    assert task.words(task.parse("1 0")) == ["#2", "1", "#3", "0", "#4", ";", "#1", "="]
    for bad in ("#4 1 #7", "#4 #4 1 #7", "#4 1 #7 0"):
        with pytest.raises(BadInput):
            task.parse(bad)
