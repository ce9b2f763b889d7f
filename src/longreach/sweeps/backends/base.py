"""What a sweep asks of the place where its jobs run."""

from abc import ABC, abstractmethod

from longreach.errors import RunFailed
from longreach.sweeps.order import Order
from longreach.sweeps.process import Outcome


class BackendLost(RunFailed):
    """The place where jobs run is gone, which is no failure of any run."""


class Backend(ABC):
    @abstractmethod
    def has_room(self) -> bool:
        """Whether another job may be started now."""

    @abstractmethod
    def start(self, number: int, order: Order) -> None:
        """Start a job; the number names it until it has ended.  Raises `BackendLost`."""

    @abstractmethod
    def ended(self, seconds: float) -> dict[int, Outcome]:
        """Return the jobs that have ended; wait for the first at most so long.  Raises `BackendLost`."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job to save and end."""

    def kill(self) -> None:  # noqa: B027 (a cluster needs none: its jobs end with their driver)
        """End at once every job that is a child process.  Called from another thread when this process must end."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; what still runs is ended at once."""
