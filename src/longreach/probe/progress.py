"""How a probe tells how far it is."""

from collections.abc import Callable

Progress = Callable[[int], None]
"""Called with the number of sequences just computed."""


def silent(done: int) -> None:
    """Tells nobody."""
