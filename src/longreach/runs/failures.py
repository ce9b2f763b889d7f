"""What a machine can run out of, told in one line that says what is kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from longreach.errors import RunFailed

_MEMORY = ("out of memory", "can't allocate memory")
"""As torch says it of a GPU and of a CPU."""


@contextmanager
def naming_lack_of_memory(advice: str, kept: Callable[[], str]) -> Iterator[None]:
    """`kept` says what is left when it happens."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(phrase in str(error) for phrase in _MEMORY):
            raise
        raise RunFailed(f"out of memory: {advice}; {kept()}") from error
