"""Estimate memory, time and disk of an extension before it starts."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from longreach.errors import argument
from longreach.evaluation import PassCost
from longreach.extension.settings import ExtendConfig

_ADAPTED = 7
"""Linear layers of a block, which adapters are laid on."""
_KEPT = 1.5
"""What layers of transformers keep for the backward pass, by what fused layers keep."""
_LOGITS = 3
"""Copies of the logits in fp32: logits, their softmax and its gradient."""
_BACKWARD = 3.0
"""Time of a step of training, by the time of its forward pass."""


@dataclass(frozen=True)
class Estimate:
    """Memory, time and disk of an extension."""

    parameters: int
    trained_parameters: int
    training_memory: int
    """Bytes at the peak of a training, weights and optimizer included."""
    measuring_memory: int
    """Bytes at the peak of measuring."""
    training_seconds: float
    """Of all trained arms."""
    measuring_seconds: float
    """Of all arms."""
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


def estimate(model: Any, cost: PassCost, config: ExtendConfig, measured_operations: float) -> Estimate:
    """Estimate the extension of a model; its speed is that of a forward pass over a row of training.

    `measured_operations` is the arithmetic of measuring one arm.
    """
    every = int(model.num_parameters())
    trained = _adapters(cost, config.lora) if config.lora else every
    half = config.precision == "bf16"
    weights = every * (2 if half and config.lora else 4)
    states = trained * 12  # gradients and two moments of Adam, in fp32
    activations = cost.training_memory(config.batch_size, config.window, 0, half=half) * _KEPT
    logits = config.batch_size * config.window * cost.vocabulary * 4 * _LOGITS
    written = every * (2 if half else 4)
    arms = config.arms
    count = sum(arm.ids is not None for arm in arms)
    per_operation = _seconds_per_operation(model, cost, config.window)
    rows = config.steps * config.batch_size
    return Estimate(
        parameters=every,
        trained_parameters=trained,
        training_memory=int(weights + states + activations + logits),
        measuring_memory=written + cost.memory(1, config.to + 64, 64),
        training_seconds=count * rows * _BACKWARD * cost.operations(config.window) * per_operation,
        measuring_seconds=len(arms) * measured_operations * per_operation,
        # two checkpoints of weights and moments, and the model of each trained arm
        disk=int(2 * (trained * 12) + count * written),
        arms=tuple(arm.name for arm in arms),
    )


def smaller_settings() -> str:
    """Return advice for an extension that does not fit into memory."""
    names = (argument("batch_size"), argument("window"), argument("lora", 16))
    return f"use a smaller {names[0]} or {names[1]}, or {names[2]}"


def _adapters(cost: PassCost, rank: int) -> int:
    """Return about how many weights adapters of this rank have."""
    return 2 * _ADAPTED * rank * cost.width * cost.depth


@torch.no_grad()
def _seconds_per_operation(model: Any, cost: PassCost, tokens: int) -> float:
    """Return the seconds of an operation in a forward pass over a row."""
    row = torch.ones(1, tokens, dtype=torch.long, device=model.device)
    seconds = []
    for _ in range(2):  # the first call loads libraries
        start = time.perf_counter()
        logits = model(input_ids=row, attention_mask=torch.ones_like(row), use_cache=False).logits
        float(logits[0, -1, 0])  # waits for the GPU
        seconds.append(time.perf_counter() - start)
    return min(seconds) / cost.operations(tokens)
