"""Progress on the terminal.  Everything goes to stderr."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from longreach.evaluation import Work
from longreach.runs import Observer

_QUIET_SECONDS = 15.0
"""Seconds between lines where there is no terminal to draw a bar on."""


def duration(seconds: float) -> str:
    """Format seconds: 1.5 h, 12 min, 40 s."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f}/s" if task.speed else "", style="cyan")


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
def watch(console: Console, quiet: bool = False, later: Callable[[], str] = lambda: "") -> Iterator[Observer]:
    """Yield an observer that shows bars with rate and time left, or plain lines where output is not a terminal.

    `quiet` silences progress, but not what a run says, nor the warning before work of more than five minutes.  `later`
    describes further work, which the warning does not count.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[note]}", markup=False),
    )
    progress = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
    lines = not quiet and not console.is_terminal
    warned = False
    now: _Phase | None = None

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def warn(title: str, seconds: float) -> None:
        nonlocal warned
        if seconds > LONG and not warned:
            warned = True
            say(f"warning: {title} will take about {duration(seconds)} more (an estimate){later()}; Ctrl-C stops it")

    def phase(title: str, total: int) -> Callable[[int, str], None]:
        nonlocal now
        now = own = _Phase(title, total)
        bar = progress.add_task(title, total=total, note="", left="")
        shown = time.monotonic()

        def report(done: int, note: str) -> None:
            nonlocal shown
            left = own.left(done)
            about = "" if left is None else f"about {duration(left)} left"
            progress.update(bar, completed=done, note=note, left=about)
            if left is not None and own.known():
                warn(title, left)
            if lines and (time.monotonic() - shown > _QUIET_SECONDS or done == total):
                shown = time.monotonic()
                rest = [f"{done}/{total}", f"{own.rate(done):.0f}/s", about or "0 s left", note]
                say(f"{title}: {', '.join(filter(None, rest))}")

        return report

    def expect(work: Work) -> None:
        assert now is not None
        now.work, now.started = work, time.monotonic()
        warn(now.title, work.total)

    with progress:
        yield Observer(phase=phase, expect=expect, say=say)
