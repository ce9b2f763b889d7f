"""The settings of training."""

from dataclasses import dataclass, field
from typing import Literal

from longreach.config import Settings, Span
from longreach.objective import ObjectiveConfig
from longreach.training.optimizer import OptimizerConfig
from longreach.training.stream import LONGEST, PrimeConfig


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Settings):
    """How long and on what a model trains.  Budgets are in steps, never in seconds."""

    lengths: Span = Span(1, 40)
    """Training lengths, both ends included; those the task does not have are left out."""
    prime: PrimeConfig | None = None
    """Train set priming: a few samples of greater length among the others, as in {lengths: 40, share: 0.01}."""
    steps: int = 2000
    """Optimizer steps."""
    batch_size: int = 128
    """Samples in a step."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes matrix products in bf16 under autocast; weights stay fp32."""
    validate_every: int = 500
    """Steps between measurements at training lengths."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """The losses."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """AdamW and its schedule."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "validate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name} must be at least 1, got {getattr(self, name)}")
        if self.lengths.high > LONGEST:
            raise ValueError(f"train.lengths must be at most {LONGEST}, got {self.lengths}")
