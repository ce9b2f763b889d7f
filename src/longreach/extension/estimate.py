"""Estimate memory, time and disk of an extension before it starts."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from longreach.evaluation import PassCost, memory_of_text
from longreach.evaluation.context import BLOCK, predicted_at_once
from longreach.extension.measure import ReachConfig
from longreach.extension.settings import ExtendConfig

_ADAPTED = 7
"""Linear layers of a block, which adapters are laid on."""
_KEPT = 1.5
"""Memory that layers of transformers keep for the backward pass, relative to our fused layers."""
_LOGITS = 3
"""Copies of the logits in fp32: logits, their softmax and its gradient."""
_BACKWARD = 3.0
"""Time of a training step, relative to its forward pass."""
_STATES = 12
"""Bytes of a trained weight besides itself: its gradient and two moments of Adam, in fp32."""
_CACHE = 1 << 30
"""Bytes of cached keys and values while retrieval is measured."""


@dataclass(frozen=True)
class ExtensionEstimate:
    """Memory, time and disk of an extension."""

    parameters: int
    trained_parameters: int
    training_memory: int
    """Bytes at the peak of a training, weights and optimizer included."""
    measuring_memory: int
    """Bytes at the peak of measuring."""
    training_seconds: float
    """Seconds to train all arms."""
    measuring_seconds: float
    """Seconds to measure all arms."""
    disk: int
    """Bytes at the peak, the prepared texts left out."""
    arms: tuple[str, ...]

    @property
    def memory(self) -> int:
        return max(self.training_memory, self.measuring_memory)

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.measuring_seconds

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "memory": self.memory, "seconds": self.seconds}


def estimate(
    parameters: int, cost: PassCost, per_operation: float, config: ExtendConfig, reach: ReachConfig
) -> ExtensionEstimate:
    """Estimate the extension of a model; `per_operation` is the seconds of an operation in a forward pass."""
    trained = _adapters(cost, config.lora) if config.lora else parameters
    half = config.precision == "bf16"
    weights = parameters * (2 if half and config.lora else 4)
    states = trained * _STATES
    activations = cost.training_memory(config.batch_size, config.window, 0, half=half) * _KEPT
    logits = config.batch_size * config.window * cost.vocabulary * 4 * _LOGITS
    written = parameters * (2 if half else 4)
    arms = config.arms
    count = sum(arm.ids is not None for arm in arms)
    rows = config.steps * config.batch_size
    measuring, _ = memory_of_text(cost, reach.test, reach.batch_tokens)
    return ExtensionEstimate(
        parameters=parameters,
        trained_parameters=trained,
        training_memory=int(weights + states + activations + logits),
        measuring_memory=written + measuring + min(reach.batch_tokens * cost.cached, _CACHE) * 3,
        training_seconds=count * rows * _BACKWARD * cost.operations(config.window) * per_operation,
        measuring_seconds=len(arms) * _measured_operations(cost, reach) * per_operation,
        # checkpoints of trained weights and their moments, the third while it is saved, and a model for each arm
        disk=3 * trained * _STATES + count * written,
        arms=tuple(arm.name for arm in arms),
    )


def _measured_operations(cost: PassCost, reach: ReachConfig) -> float:
    """Return the arithmetic of measuring one arm."""
    contexts = list(reach.contexts)
    windows = [(predicted_at_once(context), context + predicted_at_once(context)) for context in contexts]
    losses = sum(reach.samples / last * cost.operations(tokens) for last, tokens in windows)
    asked = len(reach.depths) * reach.questions * (1 + len(reach.needles)) if reach.retrieval else 0
    return losses + sum((asked + reach.samples / BLOCK) * cost.operations(context) for context in contexts)


def _adapters(cost: PassCost, rank: int) -> int:
    """Return about how many weights adapters of this rank have."""
    return 2 * _ADAPTED * rank * cost.width * cost.depth


@torch.no_grad()
def seconds_per_operation(model: Any, cost: PassCost, tokens: int) -> float:
    """Return the seconds of an operation in a forward pass over a row."""
    row = torch.ones(1, tokens, dtype=torch.long, device=model.device)
    seconds = []
    for _ in range(2):  # the first call loads libraries
        start = time.perf_counter()
        logits = model(input_ids=row, attention_mask=torch.ones_like(row), use_cache=False).logits
        float(logits[0, -1, 0])  # waits for the GPU
        seconds.append(time.perf_counter() - start)
    return min(seconds) / cost.operations(tokens)
