"""All checks of a task, in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.tasks.base import Sample, Task
from longreach.tasks.checking.answers import check_answers, check_prompts, check_stops
from longreach.tasks.checking.batches import check_batches, check_structure, check_vocabulary
from longreach.tasks.checking.drawn import PYTHON, Drawn, alike, describe, draw, global_generators, spread, words
from longreach.tasks.checking.ids import check_coupling, check_dependencies
from longreach.tasks.checking.steps import check_program
from longreach.tasks.plain import run_foreign
from longreach.tasks.program import Program

_MOST_TOKENS = 1 << 21
_MOST_LENGTHS = 512


@dataclass(frozen=True)
class Findings:
    """What the checks of a task found."""

    lengths: tuple[int, ...]
    """Lengths of the checked samples."""
    samples: int
    faults: list[str] = field(default_factory=list)
    """A line for each check that failed; empty if the task passes."""
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and advice."""


def check_task(task: Task, legal: Sequence[int], samples: int, seed: int = 0) -> Findings:
    """Check samples, answers, prompts, IDs and dependencies of a task at some of the lengths that it has."""
    lengths = spread(legal, 12)
    notes: list[str] = []
    try:
        drawn = run_foreign(task.name, lambda: _draw_twice(task, lengths, samples, seed, notes))
    except BadInput as error:
        return Findings(lengths, 0, [str(error)])
    checks: list[Callable[[Drawn], None]] = [
        check_stops,
        check_answers,
        check_batches,
        check_prompts,
        check_coupling,
        check_dependencies,
    ]
    if isinstance(task, Program):
        checks.append(check_program)
    faults = []
    for check in checks:
        try:
            run_foreign(task.name, partial(check, drawn))
        except BadInput as error:
            faults.append(str(error))
    return Findings(lengths, len(drawn.numbers), list(dict.fromkeys(faults)), notes)


def _draw_twice(task: Task, lengths: Sequence[int], samples: int, seed: int, notes: list[str]) -> Drawn:
    """Draw a ragged batch twice, under different states of the global generators, and check its structure."""
    longest = max(lengths)
    check_vocabulary(task)
    width = run_foreign(task.name, partial(task.max_tokens, longest))
    if not isinstance(width, int) or width < 2:
        raise BadInput(f"{task.name}: max_tokens({longest}) must be a whole number from 2, got {width!r}")
    numbers = torch.arange(max(len(lengths), min(samples, _MOST_TOKENS // width)))
    length = torch.tensor([lengths[number % len(lengths)] for number in numbers.tolist()])
    made: list[Sample] = []
    used: set[str] = set()
    for state in (1, 2):
        with global_generators(state) as of_draw:
            made.append(draw(task, length, numbers, seed, longest))
        used |= of_draw
        check_structure(task, made[-1], length, longest)
    one, other = made
    generators = " and ".join(sorted(used))
    advice = f"take all random numbers from `{'rng' if task.draws_on_host else 'draws'}`"
    for row in (~alike(one, other)).nonzero()[:1, 0].tolist():
        ends = [int(sample.num_tokens[row]) for sample in made]
        both = [words(task, sample.tokens[row, :end].tolist()) for sample, end in zip(made, ends, strict=True)]
        raise BadInput(
            f"{task.name}: {describe(task, one, row, row)}: drawn twice it is {both[0]} and {both[1]}: {advice}"
            + (f" ({generators} was used)" if used else "")
        )
    if used - {PYTHON}:
        raise BadInput(f"{task.name}: sample uses {generators}: {advice}")
    if used:  # type checkers at run time use it too, which does no harm
        notes.append(f"sample changes the state of {PYTHON}: {advice}")
    return Drawn(task, one, numbers, seed, lengths, notes)


def legal_lengths_within(task: Task, span: Span) -> tuple[int, ...]:
    """Return lengths of a span that the task has: all, or those among many that are spread over a long span.

    Raises:
        BadInput: There are none, or the task is open-ended.
    """
    if task.open_ended:
        raise BadInput(f"{task.name} is open-ended: it has no right answers to check")
    asked = range(span.low, span.high + 1)
    if len(asked) > _MOST_LENGTHS:
        near = spread(asked, _MOST_LENGTHS // 2)
        asked_few = sorted({*near, *(length + 1 for length in near[:-1])})  # some tasks have even lengths only
    else:
        asked_few = list(asked)
    legal, refusal = [], None
    for length in asked_few:
        try:
            run_foreign(task.name, partial(task.check_length, length))
        except BadInput as error:
            refusal = error
        else:
            legal.append(length)
    if not legal:
        raise BadInput(f"no length in {span} is possible: {refusal}")
    return tuple(legal)
