"""Progress on the terminal, and a Ctrl-C that lets the current step finish.  Everything goes to stderr."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from longreach.runs import Observer

_QUIET_SECONDS = 15.0
"""Seconds between lines where there is no terminal to draw a bar on."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f}/s" if task.speed else "", style="cyan")


@contextmanager
def watch(console: Console, quiet: bool = False) -> Iterator[Observer]:
    """An observer that shows bars with rate and time left, or plain lines where output is not a terminal.
    `quiet` silences progress; what a run has to say is always said."""
    asked = False

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        console.print("stopping after this step (once more to stop at once)")

    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", markup=False),
    )
    progress = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
    lines = not quiet and not console.is_terminal

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def phase(title: str, total: int) -> Callable[[int, str], None]:
        bar = progress.add_task(title, total=total, note="")
        started = shown = time.monotonic()
        first: int | None = None

        def report(done: int, note: str) -> None:
            nonlocal shown, first
            if first is None:
                first = done
            progress.update(bar, completed=done, note=note)
            now = time.monotonic()
            if lines and (now - shown > _QUIET_SECONDS or done == total):
                shown = now
                rate = (done - first) / max(now - started, 1e-9)
                left = (total - done) / rate if rate else 0.0
                say(f"{title}: {done}/{total}, {rate:.0f}/s, {left:.0f} s left" + (f", {note}" if note else ""))

        return report

    try:
        with progress:
            yield Observer(phase=phase, say=say, should_stop=lambda: asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
