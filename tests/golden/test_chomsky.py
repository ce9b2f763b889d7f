"""Stored samples of all generators of Deletang et al. (ICLR 2023): our tasks read their inputs and give their outputs.

`chomsky.json` holds the samples and says where they come from.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from longreach.api import (
    BinaryAddition,
    BinaryMultiplication,
    BucketSort,
    ComputeSqrt,
    CycleNavigation,
    Duplicate,
    EvenPairs,
    MissingDuplicate,
    ModularArithmetic,
    OddsFirst,
    Parity,
    Reverse,
    SolveEquation,
    StackManipulation,
    Task,
    stream,
)

STORED = json.loads((Path(__file__).parent / "chomsky.json").read_text())["tasks"]
TASKS: dict[str, Task] = {
    "binary_addition": BinaryAddition(),
    "binary_multiplication": BinaryMultiplication(),
    "bucket_sort": BucketSort(),
    "compute_sqrt": ComputeSqrt(),
    "cycle_navigation": CycleNavigation(),
    "duplicate": Duplicate(symbols=2),
    "even_pairs": EvenPairs(),
    "missing_duplicate": MissingDuplicate(),
    "modular_arithmetic": ModularArithmetic(),
    "modular_arithmetic_brackets": ModularArithmetic(brackets=True, published=True),
    "odds_first": OddsFirst(symbols=2),
    "parity": Parity(),
    "reverse": Reverse(symbols=2),
    "solve_equation": SolveEquation(),
    "stack_manipulation": StackManipulation(),
}


def split(name: str, text: str) -> list[str]:
    return text.split() if name == "stack_manipulation" else list(text)


def framed(task: Task, given: list[str]) -> list[str]:
    """Return an input with the marks of ours around it."""
    front = [";"] if task.name in ("reverse", "stack_manipulation") else []
    return [*front, *given, *task.ending]


def own_length(name: str, tokens: int) -> int:
    """Return the length that a task of ours gives an input of so many tokens: a flat expression counts its numbers."""
    return (tokens + 1) // 2 if name == "modular_arithmetic" else tokens


def test_every_stored_generator_is_compared():
    assert set(TASKS) == set(STORED)
    assert len(STORED) == 15


@pytest.mark.parametrize("name", TASKS)
def test_the_answers_are_those_of_the_authors(name):
    task = TASKS[name]
    for text, output in STORED[name]["samples"]:
        given = split(name, text)
        tokens = task.parse(" ".join(framed(task, given)))
        assert task.words(tokens) == framed(task, given)
        prompt = task.prompt_batch(tokens, 1)
        assert int(prompt.length) == own_length(name, len(given))
        answer = task.words(task.solve(prompt, 0))
        if name.startswith("binary"):
            written, stop, padding = output.partition(".")  # only zeros follow the authors' termination token
            assert "".join(answer) == written + stop
            assert set(padding) <= {"0"}
        elif name == "odds_first":  # their code writes the second, fourth ... symbols first, unlike its description
            half = len(output) // 2
            assert "".join(answer) == output[half:] + output[:half] + "."
        elif name == "stack_manipulation":
            assert " ".join(answer) == output
        elif name == "even_pairs":
            assert answer == [output]
        else:
            assert "".join(answer) == output + ("." if task.stop_token else "")


@pytest.mark.parametrize("name", TASKS)
def test_inputs_are_those_of_the_authors_and_as_frequent(name):
    """By up to six standard deviations; both sides are seeded."""
    task, stored = TASKS[name], STORED[name]["counts"]
    theirs, count = stored["inputs"], sum(stored["inputs"].values())
    length = own_length(name, stored["length"])
    sample = task.sample(torch.full((count,), length), stream(0, "compare", torch.arange(count)), length)
    prompts = zip(sample.tokens.tolist(), sample.prompt_tokens.tolist(), strict=True)
    ours = Counter(tuple(task.words(row[:size])) for row, size in prompts)
    expected = {tuple(framed(task, split(name, text))): times for text, times in theirs.items()}
    assert set(ours) == set(expected)
    for prompt, times in expected.items():
        assert abs(ours[prompt] - times) < 6 * (ours[prompt] + times) ** 0.5, prompt
