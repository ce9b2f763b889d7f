"""One model trained by several ranks: each has its rows of every batch, and the gradients are summed.

With `ddp` every rank has the whole model; with `fsdp` its weights, gradients and optimizer state are split.
"""

from typing import Literal, cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from longreach.engine.ranks import Ranks
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.model import Model, Transformer
from longreach.training.config import TrainConfig
from longreach.training.loss import WholeLoss
from longreach.training.optimizer import build_optimizer

Parallel = Literal["ddp", "fsdp"]


class Shared:
    """A model and its optimizer as the ranks train them, made of whole ones that every rank has alike."""

    def __init__(
        self, kind: Parallel, ranks: Ranks, device: str, config: TrainConfig, model: Model, whole: torch.optim.Optimizer
    ) -> None:
        self.loss: nn.Module
        self.split = kind == "fsdp"
        if kind == "ddp":
            self.model, self.optimizer = model, whole
            self.loss = DistributedDataParallel(WholeLoss(model))
        else:
            from longreach.engine.shards import shard_model, shard_state  # takes a second to import

            self.loss = sharded = shard_model(cast(Transformer, model), ranks, device)
            self.model = sharded.model
            self.optimizer = build_optimizer(config.optimizer, self.model)
            shard_state(self.optimizer, whole)

    def refresh_model(self, whole: Model | None) -> None:
        """Bring the first rank's whole model up to date.  All ranks call this, the others without one."""
        if self.split:
            from longreach.engine.shards import gather_model

            gather_model(self.model, whole)

    def refresh_state(self, whole: torch.optim.Optimizer | None) -> None:
        """Likewise the first rank's optimizer."""
        if self.split:
            from longreach.engine.shards import gather_state

            gather_state(self.optimizer, whole)


def check_parallel(
    kind: Parallel, ranks: int, device: str, config: TrainConfig, execution: ExecutionConfig, model: Model
) -> None:
    """Refuse what several ranks cannot do as asked."""
    if config.batch_size % (ranks * execution.accumulate):
        parts = f" of {execution.accumulate} parts" if execution.accumulate > 1 else ""
        raise BadInput(f"train.batch_size={config.batch_size} does not split among {ranks} processes{parts}")
    if execution.compile:
        raise BadInput("execution.compile goes with one process only")
    if execution.graph and torch.device(device).type == "cuda":
        raise BadInput("a step of several processes cannot be recorded: set execution.graph to false")
    if kind == "fsdp" and not isinstance(model, Transformer):
        raise BadInput(
            f"--parallel fsdp splits the layers of a transformer, not of a {model.config.name} model: use ddp"
        )
    for name, parameter in model.named_parameters():
        if kind == "fsdp" and parameter.dim() == 0:
            raise BadInput(f"--parallel fsdp cannot split {name}, which is a single number: use ddp")
