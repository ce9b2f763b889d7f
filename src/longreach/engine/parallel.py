"""One model trained by several ranks: each has its rows of every batch, and the gradients are summed.

With `ddp` every rank has the whole model; with `fsdp` its weights, gradients and optimizer state are split.
"""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from longreach.engine.drawing import Stream
from longreach.engine.plan import Parallel, choose
from longreach.engine.ranks import Ranks
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.model import Model, Transformer
from longreach.objectives import Objective
from longreach.training.config import TrainConfig
from longreach.training.optimizer import build_optimizer
from longreach.training.step import Ready, Step, row_losses


class WholeLoss(nn.Module):
    """A model with its loss as one module.

    DDP and FSDP act on one forward pass, and the loss uses heads and embeddings outside the model's own.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, objectives: Sequence[Objective], ready: Ready, most: int | None) -> Float[Tensor, "terms b"]:
        return row_losses(self.model, objectives, ready, most)


class Shared:
    """A model and its optimizer as the ranks train them, made of whole ones that are equal on every rank."""

    def __init__(
        self,
        kind: Parallel,
        ranks: Ranks,
        device: str,
        config: TrainConfig,
        execution: ExecutionConfig,
        model: Model,
        whole: torch.optim.Optimizer,
        data: Stream,
    ) -> None:
        self.ranks, self.split = ranks, kind == "fsdp"
        self.plan = choose(model, execution, device, config.precision, kind, data)
        self.data = self.plan.training_data(data, config.steps)
        fast = self.plan.training_model(model)
        self.loss: nn.Module
        if kind == "ddp":
            self.model, self.optimizer = model, whole
            self.loss = DistributedDataParallel(WholeLoss(fast))
        else:
            from longreach.engine.shards import shard_model, shard_state  # takes a second to import

            self.loss = sharded = shard_model(cast(Transformer, fast), ranks, device)
            self.model = sharded.model
            self.optimizer = build_optimizer(config.optimizer, self.model)
            shard_state(self.optimizer, whole)

    def refresh_model(self, whole: Model | None) -> None:
        """Update the first rank's whole model.  All ranks call this, the others with None."""
        if self.split:
            from longreach.engine.shards import gather_model

            gather_model(self.model, whole)

    def refresh_state(self, whole: torch.optim.Optimizer | None) -> None:
        """Update the first rank's whole optimizer.  All ranks call this, the others with None."""
        if self.split:
            from longreach.engine.shards import gather_state

            gather_state(self.optimizer, whole)


class DistributedStep(Step):
    """One step of a model that several ranks train.  All ranks call it together."""

    def __init__(self, shared: Shared, config: TrainConfig, accumulate: int = 1) -> None:
        super().__init__(shared.model, shared.optimizer, shared.data, config, accumulate)
        self.ranks, self.loss = shared.ranks, shared.loss
        self.weights *= self.ranks.count  # ranks average their gradients, and the sum is wanted

    def prepare(self, number: int | Tensor) -> Ready:
        """Draw the batch of a step, and select this rank's rows; the counts are those of the whole batch."""
        ready = super().prepare(number)
        return ready.rows(self.ranks.rows(len(ready.batch.ids)))

    def losses(self, ready: Ready) -> Float[Tensor, "terms b"]:
        found: Tensor = self.loss(self.objectives, ready, self.most)
        return found

    def update(self, means: Float[Tensor, "terms models"]) -> Float[Tensor, "models values"]:
        norms = self.optimize()
        return torch.cat([self.ranks.add(means), norms[None]]).T

    def optimize(self) -> Float[Tensor, "models"]:
        parameters = list(self.model.parameters())
        split = nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
        norm: Tensor = split.full_tensor() if hasattr(split, "full_tensor") else split
        if not self.reads_host or not norm <= self.max_norm:
            nn.utils.clip_grads_with_norm_(parameters, self.max_norm, split)
        self.optimizer.step()
        return norm[None]

    def finite(self) -> list[bool]:
        """Return whether the weights are finite on all ranks, each of which may have a part of them."""
        weights = [part.to_local() if hasattr(part, "to_local") else part for part in self.model.parameters()]
        spoilt = not torch.stack([part.detach().isfinite().all() for part in weights]).all()
        return [not self.ranks.any(spoilt)]


def check_parallel(
    kind: Parallel, ranks: int, device: str, config: TrainConfig, execution: ExecutionConfig, model: Model
) -> None:
    """Raise BadInput for settings that several ranks do not support."""
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
