"""Progress on the terminal.  Everything goes to stderr."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from longreach.evaluation import Work
from longreach.runs import Observer
from longreach.terminal.durations import duration
from longreach.terminal.whole import Whole

_QUIET_SECONDS = 15.0
"""Seconds between lines where there is no terminal to draw a bar on."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f}/s" if task.speed else "", style="cyan")


class _Bars(Progress):
    """Bars above a line on all runs."""

    def __init__(self, *columns: ProgressColumn, whole: Whole, **options: Any) -> None:
        self.whole = whole
        super().__init__(*columns, **options)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if line := self.whole.describe():
            yield Text(line)


LONG = 300.0
"""Seconds; a warning precedes work that takes longer."""
_MEASURED = 5.0
"""Seconds of a phase after which its pace is an estimate of the rest."""


class _Phase:
    """How long the rest of a phase will take."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = title, total
        self.started = time.monotonic()
        self.first: int | None = None
        self.work: Work | None = None

    def rate(self, done: int) -> float:
        return (done - (self.first or 0)) / max(time.monotonic() - self.started, 1e-9)

    def left(self, done: int) -> float | None:
        """Return the seconds left; None where they cannot be estimated yet."""
        if self.first is None:
            self.first = done
        if self.work is not None:
            return self.work.left(done, time.monotonic() - self.started)
        rate = self.rate(done)
        return (self.total - done) / rate if rate else None

    def known(self) -> bool:
        """Return whether an estimate is good enough for a warning."""
        return self.work is not None or time.monotonic() - self.started > _MEASURED


@contextmanager
def watch(console: Console, quiet: bool = False, whole: Whole | None = None) -> Iterator[Observer]:
    """Yield an observer that shows bars with rate and time left, or plain lines where output is not a terminal.

    `quiet` silences progress, but not what a run says, nor the warning before work of more than five minutes.  `whole`
    has all runs of the command; the warning names those after the current one and does not count them.
    """
    whole = whole or Whole()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[note]}", markup=False),
    )
    progress = _Bars(*columns, whole=whole, console=console, disable=quiet or not console.is_terminal)
    lines = not quiet and not console.is_terminal
    warned = False
    now: _Phase | None = None

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def warn(title: str, seconds: float) -> None:
        nonlocal warned
        if seconds > LONG and not warned:
            warned = True
            say(
                f"warning: {title} will take about {duration(seconds)} more (an estimate){whole.later}; Ctrl-C stops it"
            )

    def phase(title: str, total: int) -> Callable[[int, str], None]:
        nonlocal now
        now = own = _Phase(title, total)
        whole.begin_phase(title, total)
        bar = progress.add_task(title, total=total, note="", left="")
        shown = time.monotonic()

        def report(done: int, note: str) -> None:
            nonlocal shown
            left = own.left(done)
            whole.note(done)
            about = "" if left is None else f"about {duration(left)} left"
            progress.update(bar, completed=done, note=note, left=about)
            if left is not None and own.known():
                warn(title, left)
            if lines and (time.monotonic() - shown > _QUIET_SECONDS or done == total):
                shown = time.monotonic()
                rest = [f"{done}/{total}", f"{own.rate(done):.0f}/s", about or "0 s left", note, whole.describe()]
                say(f"{title}: {', '.join(filter(None, rest))}")

        return report

    def expect(work: Work) -> None:
        assert now is not None
        now.work, now.started = work, time.monotonic()
        warn(now.title, work.total)

    with progress:
        yield Observer(phase=phase, expect=expect, say=say)
