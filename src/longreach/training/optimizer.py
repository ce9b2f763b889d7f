"""AdamW with weight decay on matrices only, and learning rates as a function of the step."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longreach.config import Settings


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Settings):
    """AdamW and its schedule."""

    lr: float = 3e-4
    """Peak learning rate."""
    weight_decay: float = 0.1
    """Decoupled decay of weight matrices; not of embeddings, norms, biases and scales."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.98
    """Decay of the mean of squared gradients."""
    eps: float = 1e-8
    """Added to the root of the mean square.  Where the loss falls to nothing, larger ones prevent late spikes."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """What follows the warm-up: fall to zero on a line or a cosine, or stay."""
    warmup: int = 300
    """Steps in which the rate rises from zero."""
    clip: float = 1.0
    """Largest gradient norm; 0 turns clipping off."""

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay", "eps", "warmup", "clip"):
            if getattr(self, name) < 0:
                raise ValueError(f"optimizer.{name} must not be negative, got {getattr(self, name)}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"optimizer.{name} must be in [0, 1), got {getattr(self, name)}")


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.AdamW:
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            matrices |= {id(parameter) for parameter in module.parameters() if parameter.dim() == 2}
    decayed = [p for p in model.parameters() if id(p) in matrices]
    others = [p for p in model.parameters() if id(p) not in matrices]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def clip_each(parameters: list[nn.Parameter], most: float, models: int) -> Float[Tensor, "{models}"]:
    """Scale the gradients of each of the stacked models down to a norm of at most `most`; the norms before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if models == 1:
        total: Tensor = torch.nn.utils.get_total_norm(gradients)
        # where every rank has a part of the weights
        norm: Tensor = total.full_tensor() if hasattr(total, "full_tensor") else total
        # on a CPU looking costs nothing, and multiplying all gradients by 1 does; a GPU would have to be waited for
        if norm.is_cuda or not norm <= most:
            torch.nn.utils.clip_grads_with_norm_(parameters, most, total)
        return norm[None]
    # side by side first: a norm of its own for each of many small weights takes a GPU far longer
    norms: Tensor = torch.cat([gradient.reshape(models, -1) for gradient in gradients], dim=1).norm(dim=1)
    scale = (most / (norms + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))
    return norms


def take_shares(parameters: list[nn.Parameter], before: list[Tensor], shares: Float[Tensor, "models"]) -> None:
    """Let each of the stacked models go only its share of a step: what AdamW adds is proportional to the rate, so that
    half the rate is half the way."""
    with torch.no_grad():
        for parameter, old in zip(parameters, before, strict=True):
            share = shares.to(parameter.dtype).view(-1, *[1] * (parameter.dim() - 1))
            parameter.copy_(old.lerp(parameter, share))


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """The rate of step 0, 1, ..., steps-1.  The first step of a warm-up is not zero: no step is wasted."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, steps - config.warmup)
    if config.schedule == "linear":
        return config.lr * (1 - done)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * done))
    return config.lr
