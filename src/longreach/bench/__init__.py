"""How fast it is."""

from longreach.bench.tasks import TaskSpeed, measured_speeds, time_tasks

__all__ = ["TaskSpeed", "measured_speeds", "time_tasks"]
