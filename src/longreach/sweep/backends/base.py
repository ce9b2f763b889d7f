"""What a sweep asks of the place where its jobs run."""

from abc import ABC, abstractmethod

from longreach.sweep.order import Order
from longreach.sweep.process import Outcome


class Backend(ABC):
    @abstractmethod
    def has_room(self) -> bool:
        """Whether another job may be started now."""

    @abstractmethod
    def start(self, number: int, order: Order) -> None:
        """Start a job; the number names it until it has ended."""

    @abstractmethod
    def ended(self, seconds: float) -> dict[int, Outcome]:
        """The jobs that have ended, waiting for the first at most so long."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job to save and end."""

    def kill(self) -> None:  # noqa: B027 (a cluster needs none: its jobs end with their driver)
        """End at once every job that is a child process.  Called from another thread when this process must end."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; what still runs is ended at once."""
