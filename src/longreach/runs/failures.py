"""What a machine can run out of, told in one line that says what is kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from longreach.errors import RunFailed, lacks_memory


@contextmanager
def naming_lack_of_memory(advice: str, kept: Callable[[], str]) -> Iterator[None]:
    """`kept` says what is left when it happens."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RunFailed) or not lacks_memory(error):
            raise
        raise RunFailed(f"out of memory: {advice}; {kept()}") from error
