"""Samples that are drawn for a check, and how messages show them."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.tasks.base import Sample, Task
from longreach.tasks.plain import run_foreign

P = ParamSpec("P")
T = TypeVar("T")
CheckRecord = Literal["", "passed", "skipped"]
"""What run.json records of the check before a run; empty if there was none to make."""

_MOST_WORDS = 40


def is_foreign(task: Task) -> bool:
    """Return whether the class of a task, or of a task inside it, lies outside the package."""
    if not type(task).__module__.startswith("longreach."):
        return True
    parts = [getattr(task, one.name) for one in fields(task)] if is_dataclass(task) else []
    inner = [one for part in parts for one in (part if isinstance(part, list | tuple) else [part])]
    return any(is_foreign(one) for one in inner if isinstance(one, Task))


@dataclass(frozen=True)
class Drawn:
    """A ragged batch of a task, whose structure was checked."""

    task: Task
    sample: Sample
    numbers: Int[Tensor, "b"]
    """Numbers of the samples in their stream."""
    seed: int
    lengths: Sequence[int]
    """Lengths that the task has, in rising order."""
    notes: list[str] = field(default_factory=list)

    def call(self, method: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a method of the task; an error names the user's file and line."""
        return run_foreign(self.task.name, lambda: method(*arguments, **options))

    def draw(self, rows: Int[Tensor, "n"], max_length: int) -> Sample:
        """Draw some of the samples again."""
        return draw(self.task, self.sample.length[rows], self.numbers[rows], self.seed, max_length)

    def describe(self, row: int) -> str:
        """Return the number, the length and the prompt of a sample."""
        return describe(self.task, self.sample, row, int(self.numbers[row]))

    def answer(self, row: int) -> str:
        """Return the words of a sample's answer."""
        return words(self.task, self.sample.tokens[row][self.sample.answer[row]].tolist())


def draw(task: Task, length: Int[Tensor, "b"], numbers: Int[Tensor, "b"], seed: int, max_length: int) -> Sample:
    """Draw samples by their numbers."""
    made = run_foreign(task.name, lambda: task.sample(length, stream(seed, "check", numbers), max_length))
    if not isinstance(made, Sample):
        raise BadInput(f"{task.name}: sample returns a {type(made).__name__}, not a Sample")
    return made


def words(task: Task, tokens: Sequence[int]) -> str:
    """Return tokens in quotes, without the middle of many, and with numbers for those outside the vocabulary."""
    names = [task.vocabulary[token] if 0 <= token < len(task.vocabulary) else f"<{token}>" for token in tokens]
    if len(names) > _MOST_WORDS:
        names = [*names[: _MOST_WORDS // 2], "...", *names[-_MOST_WORDS // 2 :]]
    return f"'{' '.join(names)}'"


def describe(task: Task, sample: Sample, row: int, number: int) -> str:
    """Return the number, the length and the prompt of a sample."""
    prompt = sample.tokens[row, : max(0, int(sample.prompt_tokens[row]))].tolist()
    return f"sample {number} of length {int(sample.length[row])}, {words(task, prompt)}"


def alike(one: Sample, other: Sample) -> Bool[Tensor, "b"]:
    """Return for each row whether two batches hold the same sample, at any width."""
    width = max(one.tokens.shape[1], other.tokens.shape[1])

    def wide(tensor: Tensor) -> Tensor:
        return pad(tensor, (0, width - tensor.shape[1]))

    same = (one.num_tokens == other.num_tokens) & (one.prompt_tokens == other.prompt_tokens)
    same &= (wide(one.tokens) == wide(other.tokens)).all(1) & (wide(one.given) == wide(other.given)).all(1)
    return same


def spread(lengths: Sequence[int], count: int) -> tuple[int, ...]:
    """Return at most `count` of many lengths, the first and the last among them."""
    if len(lengths) <= count:
        return tuple(lengths)
    return tuple(lengths[number * (len(lengths) - 1) // (count - 1)] for number in range(count))


PYTHON = "Python's random"


@contextmanager
def global_generators(seed: int) -> Iterator[set[str]]:
    """Seed the global generators, and yield a set that gets the names of those that are used inside.

    Their states are as before afterwards.
    """
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    used: set[str] = set()
    try:
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        seeded = _states()
        yield used
        used |= {generator for generator, state in _states().items() if state != seeded[generator]}
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


def _states() -> dict[str, Any]:
    """Return the states of the global generators, by name."""
    numpy: Any = np.random.get_state()
    return {
        PYTHON: random.getstate(),
        "numpy.random": (numpy[1].tobytes(), numpy[2:]),
        "torch's global generator": torch.get_rng_state().tolist(),
    }
