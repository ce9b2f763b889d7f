"""How a run is computed, as opposed to what it computes."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from longreach.config import Bounds, Positive, Settings


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig(Settings):
    """Settings of the machine and the engine.  They change results by rounding only, and may change on `--resume`."""

    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`; `auto` takes a GPU where there is one."""
    engine: Literal["auto", "plain"] = "auto"
    """`auto` uses every faster path that computes the same; `plain` uses the reference core alone."""
    without: list[str] = field(default_factory=list)
    """Parts of the engine that are not to be used, by the names that the plan prints."""
    graph: bool = True
    """On a GPU: record a training step, a test batch and a decoding step as CUDA graphs and replay them."""
    compile: bool = False
    """Compile the layers with torch.compile: half a minute at the start, then faster steps.  GPT-NeoX layers are
    faster without, in bf16 on a GPU: fused kernels compute them there."""
    recompute: bool = False
    """Keep only the inputs of layers for the backward pass and compute the rest again: less memory, for one more
    forward pass."""
    deterministic: bool = False
    """On a GPU: use only kernels that give the same bits every time, so that a resumed run is exactly the undisturbed
    one; slower.  A CPU does so anyway."""
    stack: Positive | Literal["auto"] = "auto"
    """Most runs that are trained as one computation; `auto` chooses on a GPU, and is 1 on a CPU and in a sweep."""
    workers: Annotated[int, Bounds(0, 1024)] | None = None
    """Processes that draw the batches of a task in plain Python ahead of training; 0: the training process draws them.
    By default one less than there are cores, at most 16, started if drawing takes more than a tenth of the time."""
    accumulate: Positive = 1
    """Parts that a training batch is computed in, to save memory; the gradient is the whole batch's."""
    batch_tokens: Positive = 65_536
    """Tokens in a forward pass of a test: the memory budget."""
    log_every: Positive = 50
    """Steps between lines of metrics."""
    save_every: Positive = 500
    """Steps between checkpoints."""
    keep_last: Positive = 2
    """Newest checkpoints kept, besides the best in distribution."""

    def __post_init__(self) -> None:
        for name in ("compile", "recompute"):
            if self.engine == "plain" and getattr(self, name):
                raise ValueError(f"execution.{name} is a part of the engine, which execution.engine=plain leaves out")

    def stack_size(self, auto: int) -> int:
        """Return the most runs that are trained as one: `stack`, or `auto` where the setting leaves it open."""
        return auto if self.stack == "auto" else self.stack
