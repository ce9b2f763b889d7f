"""What a run may use."""

from dataclasses import dataclass

from longreach.config import Settings

_MOST_CPUS = 1024
"""As many threads as any machine can start."""


@dataclass(frozen=True, kw_only=True)
class Resources(Settings):
    """Of one run, or of one stack of them, which is one computation."""

    cpus: int = 1
    """CPU cores, and threads that torch computes with."""
    gpus: float | None = None
    """Share of a GPU: 0.25 lets four runs share one.  Left out, a run has a GPU to itself where there are any."""

    def __post_init__(self) -> None:
        if not 1 <= self.cpus <= _MOST_CPUS:
            raise ValueError(f"resources.cpus must be in 1..{_MOST_CPUS}, got {self.cpus}")
        if self.gpus is not None and not 0 <= self.gpus <= 1:
            raise ValueError(f"resources.gpus must be in 0..1, for a run uses one GPU at most, got {self.gpus}")
