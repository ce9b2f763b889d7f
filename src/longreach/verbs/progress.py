"""Progress bars for calls from Python."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from longreach.runs import Observer
from longreach.terminal.console import say
from longreach.terminal.progress import watch

Watch: TypeAlias = Callable[[], AbstractContextManager[Observer]]
"""Opens an observer for one piece of work."""


def bars(progress: bool) -> Watch:
    """Return a watch that draws progress bars on stderr, or a silent one where stderr is not a terminal."""
    return (lambda: watch(say)) if progress and say.is_terminal else (lambda: nullcontext(Observer()))
