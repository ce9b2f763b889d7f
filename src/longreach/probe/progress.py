"""How a probe tells how far it is."""

from collections.abc import Callable

Progress = Callable[[int], None]
"""Called with the number of steps just done: sequences, or whole targets where each takes many."""


def silent(done: int) -> None:
    """Tells nobody."""
