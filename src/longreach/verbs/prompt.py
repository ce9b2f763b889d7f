"""Prompts and samples that fit into memory, with room for an answer."""

from collections.abc import Callable

from longreach.decoding import prompt_with_room
from longreach.errors import BadInput, argument
from longreach.evaluation import memory_of_generation, seconds_at_length, seconds_of_generation
from longreach.model import Model
from longreach.runs import RunConfig
from longreach.system.capacity import check_memory
from longreach.tasks import Sample, Task
from longreach.terminal.console import say
from longreach.terminal.durations import duration
from longreach.terminal.progress import LONG

_TOKEN_BYTES = 200
"""Memory per token of a sample: its draws, its word, its IDs and its masks."""
_FEW_TOKENS = 1024
"""The time of a sample that has no more is not estimated."""


def typed_prompt(config: RunConfig, model: Model, text: str, max_tokens: int | None = None) -> Sample:
    """Return a prompt with room for `max_tokens` tokens.

    By default there is as much room as `prompt_with_room` leaves.
    """
    task = config.task
    if task.has_given:
        raise BadInput(
            f"parts of an answer of {task.name} are drawn: a prompt is not enough,"
            f" see inspect with {argument('length')}"
        )
    tokens = task.parse(text)
    if max_tokens is not None:
        if max_tokens < 1:
            raise BadInput(f"{argument('max_tokens')} must be at least 1, got {max_tokens}")
        asked = argument("max_tokens", max_tokens)
        check_memory(max_tokens * _TOKEN_BYTES, "cpu", asked, "use a smaller one", _warn)
        return task.prompt_batch(tokens, max_tokens)
    return prompt_with_room(task, config.ids, model, tokens)


def expect_generation(config: RunConfig, model: Model, sample: Sample, smaller: str, times: int = 1) -> None:
    """Warn before `times` generations that take long; raise BadInput if one does not fit into memory.

    `smaller` names the argument that asks for less.
    """
    device = str(sample.tokens.device)
    check_memory(memory_of_generation(model, sample), device, f"{sample.tokens.shape[1]} tokens", smaller, _warn)
    seconds = times * seconds_of_generation(model, config.task, config.ids, sample)
    if seconds > LONG:
        _warn(f"warning: the answer may take about {duration(seconds)} (an estimate): {smaller}; Ctrl-C stops it")


def check_sample(task: Task, length: int) -> None:
    """Raise BadInput if a sample of this length does not fit into memory."""
    needed = task.max_tokens(length) * _TOKEN_BYTES
    check_memory(needed, "cpu", f"a sample of length {length}", f"use a smaller {argument('length')}", _warn)


def expect_sample(task: Task, length: int, make: Callable[[int], object]) -> None:
    """Warn before a sample that takes long; raise BadInput if it does not fit into memory.

    `make` makes a sample of a length.
    """
    check_sample(task, length)
    seconds = seconds_at_length(task, length, make) if task.max_tokens(length) > _FEW_TOKENS else 0.0
    if seconds > LONG:
        smaller = f"use a smaller {argument('length')}"
        _warn(
            f"warning: a sample of length {length} may take about {duration(seconds)} (an estimate): {smaller};"
            " Ctrl-C stops it"
        )


def _warn(line: str) -> None:
    say.print(line, markup=False, highlight=False, soft_wrap=True)
