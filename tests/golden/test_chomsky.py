"""Stored samples of the generators of Deletang et al. (ICLR 2023): our tasks read their inputs and give their outputs.

`chomsky.json` holds the samples and says where they come from.
"""

import json
from pathlib import Path

import pytest

from longreach.api import (
    BinaryAddition,
    BinaryMultiplication,
    ComputeSqrt,
    MissingDuplicate,
    ModularArithmetic,
    SolveEquation,
    Task,
)

STORED = json.loads((Path(__file__).parent / "chomsky.json").read_text())["tasks"]
TASKS: list[Task] = [
    BinaryAddition(),
    BinaryMultiplication(),
    ComputeSqrt(),
    MissingDuplicate(),
    ModularArithmetic(brackets=True, published=True),
    SolveEquation(),
]


def test_every_stored_generator_is_compared():
    assert {task.name for task in TASKS} == set(STORED)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_answers_are_those_of_the_authors(task):
    for given, output in STORED[task.name]["samples"]:
        tokens = task.parse(given)
        assert task.words(tokens) == [*given, *task.ending]
        prompt = task.prompt_batch(tokens, 1)
        assert int(prompt.length) == len(given)
        answer = "".join(task.words(task.solve(prompt, 0)))
        if task.name.startswith("binary"):
            written, stop, padding = output.partition(".")  # only zeros follow the authors' termination token
            assert answer == written + stop
            assert set(padding) <= {"0"}
        else:
            assert answer == output + ("." if task.stop_token else "")
