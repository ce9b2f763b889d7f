"""The two ways a command can fail, so that the command line can answer each with a clear line."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "Storage size calculation overflowed",
    "bad_alloc",
    "ALLOC_FAILED",
)
"""Phrases of torch, on a GPU and on a CPU."""


class BadInput(ValueError):
    """What the user asked for cannot be done as asked (exit code 2); several mistakes have a line each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class RunFailed(RuntimeError):
    """The request was fine but the work could not be finished (exit code 1); several failed runs have a line each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error is Python's or torch's way to say that memory is short."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _MEMORY)


_name_flags: ContextVar[bool] = ContextVar("name_flags", default=False)


@contextmanager
def naming_flags() -> Iterator[None]:
    """Let messages name arguments as flags of the command line."""
    token = _name_flags.set(True)
    try:
        yield
    finally:
        _name_flags.reset(token)


def argument(name: str, value: object = None) -> str:
    """Return an argument as its user writes it: `max_tokens=9` in Python, `--max-tokens 9` on the command line."""
    if not _name_flags.get():
        return name if value is None else f"{name}={value!r}"
    flag = f"--{name.replace('_', '-')}"
    return flag if value is None or value is True else f"{flag} {value}"


def nearest(word: str, options: Iterable[str]) -> str:
    """Return the end of an error message: the closest options, or all of them when none is close."""
    known = sorted(options)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; known: {', '.join(known)}" if known else ""
