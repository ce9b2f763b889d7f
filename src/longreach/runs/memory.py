"""Memory of training and of the test after it, estimated before anything is made."""

from collections.abc import Callable, Sequence

import torch

from longreach.evaluation import EvalConfig, PassCost, memory_of_test
from longreach.model import Model
from longreach.runs.parts import model_shape, training_data
from longreach.runs.recipe import RunConfig
from longreach.system.capacity import check_memory, size
from longreach.tasks import Task

_COPIES = 4
"""Of the weights in training: themselves, their gradients and two moments of AdamW."""
_SMALLER_MODEL = "set a smaller model.width or model.layers"
_SMALLER_BATCH = "set a smaller train.batch_size, shorter train.lengths or a greater execution.accumulate"


def _tell_nobody(line: str) -> None:
    pass


def check_weights(config: RunConfig) -> None:
    """Raise BadInput if this machine cannot hold the weights of a run's model, which are made on the CPU."""
    check_memory(_weights(model_shape(config)), "cpu", "a model with these settings", _SMALLER_MODEL, _tell_nobody)


def check_training_memory(
    configs: Sequence[RunConfig],
    device: str,
    warn: Callable[[str], None] = _tell_nobody,
    processes: int = 1,
) -> None:
    """Raise BadInput if runs that are trained as one, or their tests, do not fit into memory.

    Warn if training needs more than is free.  Several processes on GPUs share the weights and the batch at best, and
    are refused only if that does not fit.
    """
    weights = batches = 0
    for config in configs:
        model, data = model_shape(config), training_data(config, 0, "cpu")
        weights += _COPIES * _weights(model)
        batches += PassCost.of(model).training_memory(
            data.batch_size,
            data.width,
            data.most_answer_tokens,
            parts=config.execution.accumulate,
            recompute=config.execution.recompute,
            half=config.train.precision == "bf16",
            biases_by_kernel=torch.device(device).type == "cuda",
        )
    needed = weights + batches
    if torch.device(device).type == "cuda":
        needed //= processes
    models = f"training {len(configs)} models at once" if len(configs) > 1 else "training"
    what = f"{models} ({size(weights)} for weights and optimizer, {size(batches)} for a batch)"
    smaller = _SMALLER_MODEL if weights > batches else _SMALLER_BATCH
    check_memory(needed, device, what, smaller if len(configs) == 1 else f"{smaller}, or a smaller --stack", warn)
    for config in configs:
        batch_tokens = config.execution.batch_tokens
        check_test_memory(model_shape(config), config.held_out(), config.evaluate, batch_tokens, device)


def check_together(config: RunConfig, number: int, device: str, processes: int = 1) -> None:
    """Raise BadInput if so many runs like this one, trained as one, do not fit into memory."""
    check_training_memory([config] * number, device, processes=processes)


def check_test_memory(
    model: Model,
    task: Task,
    asked: EvalConfig,
    batch_tokens: int,
    device: str,
    warn: Callable[[str], None] = _tell_nobody,
) -> None:
    """Raise BadInput if a test does not fit into memory; warn if it needs more than is free."""
    needed, length = memory_of_test(model, task, asked, batch_tokens)
    smaller = "test shorter lengths, or set a smaller execution.batch_tokens"
    check_memory(needed, device, f"a test at length {length}", smaller, warn)


def _weights(model: Model) -> int:
    """Return the bytes of a model's weights."""
    return sum(weight.numel() * weight.element_size() for weight in model.parameters())
