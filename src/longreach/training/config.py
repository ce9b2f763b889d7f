"""The settings of training."""

from dataclasses import dataclass, field
from typing import Literal

from longreach.config import Settings, Span
from longreach.objectives import Objective
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
    accumulate: int = 1
    """Parts that a batch is computed in, to save memory; the gradient is the whole batch's."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 computes matrix products in bf16 under autocast; weights stay fp32."""
    compile: bool = False
    """Compile the layers with torch.compile: half a minute at the start, then faster steps.  Layers of GPT-NeoX's kind
    are faster without, in bf16 on a GPU: kernels of our own compute them there."""
    recompute: bool = False
    """Keep only the inputs of layers for the backward pass and compute the rest again: less memory, for one more
    forward pass."""
    log_every: int = 50
    """Steps between lines of metrics."""
    validate_every: int = 500
    """Steps between measurements at training lengths."""
    save_every: int = 500
    """Steps between checkpoints."""
    keep_last: int = 2
    """Newest checkpoints kept, besides the best in distribution."""
    graph: bool = True
    """On a GPU: record a step once as a CUDA graph and replay it, which is much faster for small models."""
    deterministic: bool = False
    """On a GPU: use only kernels that give the same bits every time, so that a resumed run is exactly the undisturbed
    one; slower.  A CPU does so anyway."""
    objectives: list[Objective] = field(default_factory=list)
    """Terms of the loss besides the default ones, or with settings of their own: names, mappings, import paths."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """AdamW and its schedule."""

    def __post_init__(self) -> None:
        positive = ("steps", "batch_size", "accumulate", "log_every", "validate_every", "save_every", "keep_last")
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name} must be at least 1, got {getattr(self, name)}")
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"train.batch_size={self.batch_size} does not split into {self.accumulate} parts (train.accumulate)"
            )
        if self.lengths.high > LONGEST:
            raise ValueError(f"train.lengths must be at most {LONGEST}, got {self.lengths}")
