"""`check`: find mistakes of a task before training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from longreach.config import Span, build_part
from longreach.errors import BadInput, argument
from longreach.evaluation.shortcuts import Shortcut, find_shortcuts, growing_shortcut
from longreach.tasks import Task
from longreach.tasks.checking import CheckRecord, check_task, is_foreign, legal_lengths_within
from longreach.tasks.plain import run_foreign
from longreach.verbs.prompt import check_sample

_FEWEST_SAMPLES = 16
_OF_RUN = 128
"""Samples of the check before a run."""
_SHORTCUT_LENGTHS = 6


@dataclass(frozen=True)
class TaskCheck:
    """What the checks of a task found.  `str(check)` is a line for each fault, note, warning and shortcut."""

    task: str
    lengths: list[int]
    """Lengths of the checked samples."""
    samples: int
    faults: list[str] = field(default_factory=list)
    """A line for each check that failed; empty if the task passes."""
    warnings: list[str] = field(default_factory=list)
    """Shortcuts that grow with length."""
    notes: list[str] = field(default_factory=list)
    """What could not be checked, and advice."""
    shortcuts: list[Shortcut] = field(default_factory=list)
    """The best trivial predictor at a few lengths; empty if the task fails."""

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return not self.faults

    @property
    def verdict(self) -> str:
        """Return the result in one line."""
        if self.passed:
            return f"{self.task} passes: {self.samples} samples of lengths {self.lengths[0]}..{self.lengths[-1]}"
        more = len(self.faults) - 1
        return self.faults[0] + (f" (and {more} more, which `longreach check` lists)" if more else "")

    def __str__(self) -> str:
        parts: dict[str, Sequence[object]] = {
            "failed": self.faults,
            "warning": self.warnings,
            "note": self.notes,
            "shortcut": self.shortcuts,
        }
        lines = [f"{kind}: {line}" for kind, found in parts.items() for line in found]
        return "\n".join([*([self.verdict] if self.passed else []), *lines])


def check(
    task: Task | str | Mapping[str, Any],
    *,
    lengths: Span | str | int | tuple[int, int] = "1..40",
    samples: int = 256,
    seed: int = 0,
) -> TaskCheck:
    """Check samples, answers, prompts, IDs and dependencies of a task, and look for shortcuts.

    Args:
        task: A task, its registered name, or a mapping with its name and settings.
        lengths: Range of lengths; those that the task does not have are left out.
        samples: Samples that are drawn; fewer if they are very long.
        seed: Another seed draws other samples.

    Raises:
        BadInput: The task does not exist, has none of the lengths, or is open-ended.
    """
    made = task if isinstance(task, Task) else build_part(Task, task, "task")
    try:
        span = Span.parse(lengths)
    except ValueError as error:
        raise BadInput(f"{argument('lengths')}: {error}") from error
    if samples < _FEWEST_SAMPLES:
        raise BadInput(f"{argument('samples')} must be at least {_FEWEST_SAMPLES}, got {samples}")
    legal = legal_lengths_within(made, span)
    try:
        run_foreign(made.name, lambda: made.max_tokens(max(legal)))
    except BadInput as error:
        return TaskCheck(made.name, list(legal), 0, [str(error)])
    check_sample(made, max(legal))
    found = check_task(made, legal, samples, seed)
    result = TaskCheck(made.name, list(found.lengths), found.samples, found.faults, notes=found.notes)
    if not result.passed:
        return result
    rows = samples if made.draws_on_host else 4 * samples
    shortcuts = run_foreign(made.name, lambda: find_shortcuts(made, _few(legal), rows, seed))
    grows = growing_shortcut(shortcuts)
    return replace(result, warnings=[] if grows is None else [grows], shortcuts=shortcuts)


def check_before_run(task: Task, lengths: Span, say: Callable[[str], None], skip: bool = False) -> CheckRecord:
    """Check a task from outside the package; say warnings and return what run.json records.

    Raises:
        BadInput: The task fails.
    """
    if task.open_ended or not is_foreign(task):
        return ""
    if skip:
        return "skipped"
    found = check(task, lengths=lengths, samples=_OF_RUN)
    if not found.passed:
        raise BadInput(found.verdict)
    for line in (*found.warnings, *found.notes):
        say(f"{task.name}: {line}")
    return "passed"


def _few(lengths: Sequence[int]) -> list[int]:
    """Return the first length, the last, and some that grow by equal factors between them."""
    low, high = lengths[0], lengths[-1]
    wanted = [low * (high / low) ** (number / (_SHORTCUT_LENGTHS - 1)) for number in range(_SHORTCUT_LENGTHS)]
    return sorted({min(lengths, key=lambda length: abs(length - want)) for want in wanted})
