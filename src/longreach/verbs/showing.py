"""`show`: one sample of a task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from longreach.config import build_part
from longreach.errors import BadInput
from longreach.seeding import stream
from longreach.tasks import Form, Sample, Task
from longreach.tasks.checking import is_foreign
from longreach.tasks.plain import run_foreign
from longreach.verbs.prompt import expect_sample

MOST_DEPENDENCIES = 4096
"""Tokens of the longest sample whose dependencies are computed: they are a matrix of all pairs of tokens."""


@dataclass(frozen=True)
class ShownSample:
    """One sample with its coupled IDs and dependencies.  `str(sample)` is one line: prompt -> answer."""

    task: str
    length: int
    tokens: list[str]
    prompt_tokens: int
    answer: list[str]
    is_predicted: list[bool]
    """True for each token that a model must predict."""
    coupled_ids: dict[str, list[int]]
    """One ID per token, by form and level: `aligned position`."""
    depends_on: dict[int, list[int]] | None
    """By index of an answer token: indices of the tokens that it depends on; None where they are not known."""
    sparsity: int | None
    """The most tokens that an answer token depends on."""

    @property
    def prompt(self) -> str:
        """Return the tokens of the prompt in one line, as `predict` reads them."""
        return " ".join(self.tokens[: self.prompt_tokens])

    def __str__(self) -> str:
        return f"{self.prompt}  ->  {' '.join(self.answer)}"


def show(task: Task | str | Mapping[str, Any], length: int, *, seed: int = 0) -> ShownSample:
    """Return one sample of a task.

    Args:
        task: A task, its registered name, or a mapping with its name and settings.
        length: The task's length.
        seed: Another seed draws another sample.

    Raises:
        BadInput: The task or its length does not exist, or the sample does not fit into memory.
    """
    made = task if isinstance(task, Task) else build_part(Task, task, "task")
    if is_foreign(made):
        return run_foreign(made.name, lambda: _show(made, length, seed))
    return _show(made, length, seed)


def _show(made: Task, length: int, seed: int) -> ShownSample:
    made.check_length(length)
    with_needs = made.max_tokens(length) <= MOST_DEPENDENCIES
    expect_sample(made, length, lambda shorter: _sample(made, shorter, seed, with_needs))
    return _sample(made, length, seed)


def _sample(made: Task, length: int, seed: int, with_needs: bool = True) -> ShownSample:
    sample = made.sample(torch.tensor([length]), stream(seed, "show", torch.arange(1)), length)
    size, prompt = int(sample.num_tokens[0]), int(sample.prompt_tokens[0])
    words = made.words(sample.tokens[0, :size].tolist())
    needs, sparsity = _dependencies(made, sample, length) if with_needs else (None, None)
    ids = {}
    forms: tuple[Form, ...] = ("published", "aligned")
    if made.coupling_levels:
        for form in forms:
            levels = made.coupling(sample, form)[0, :, :size]
            for level, row in zip(made.coupling_levels, levels.tolist(), strict=True):
                ids[f"{form} {level.name}"] = row
    depends_on = None if needs is None else {i: needs[i].nonzero()[:, 0].tolist() for i in range(prompt, size)}
    predicted = sample.answer[0, :size].tolist()
    return ShownSample(made.name, length, words, prompt, words[prompt:], predicted, ids, depends_on, sparsity)


def _dependencies(task: Task, sample: Sample, length: int) -> tuple[Tensor | None, int | None]:
    """Return each token's dependencies and the most of any; None if the task states none or the sample is too long."""
    size = int(sample.num_tokens[0])
    if size > MOST_DEPENDENCIES:
        return None, None
    try:
        return task.depends_on(sample)[0, :size, :size], task.sparsity(length)
    except BadInput:
        return None, None
