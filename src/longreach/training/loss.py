"""A model with its loss as one module: DDP and FSDP look after what happens inside one forward pass, and a loss goes
through heads and embeddings that the model's own forward pass does not reach."""

from typing import Any

from torch import Tensor, nn

from longreach.model import Model
from longreach.objective import answer_loss


class WholeLoss(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        """What `answer_loss` gives, as the plain tuple of tensors that FSDP can follow."""
        losses = answer_loss(self.model, *args, **options)
        return losses.token, losses.position, losses.dependency
