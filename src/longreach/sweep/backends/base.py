"""What a sweep asks of the place where its jobs run."""

from typing import Protocol

from longreach.sweep.order import Order
from longreach.sweep.process import Outcome


class Backend(Protocol):
    def has_room(self) -> bool:
        """Whether another job may be started now."""

    def start(self, number: int, order: Order) -> None:
        """Start a job; the number names it until it has ended."""

    def ended(self, seconds: float) -> dict[int, Outcome]:
        """The jobs that have ended, waiting for the first at most so long."""

    def stop(self) -> None:
        """Ask every job to save and end."""

    def close(self) -> None:
        """Give everything back; what still runs is ended at once."""
