"""AdamW with weight decay on matrices only, and learning rates as a function of the step."""

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

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


class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` without the wrappers that import `torch._dynamo`, which takes as long as importing torch.

    The wrappers keep torch.compile out of the methods.  The engine compiles layers only.
    """

    add_param_group: Any = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad: Any = inspect.unwrap(torch.optim.AdamW.zero_grad)
    state_dict: Any = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict: Any = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    step: Any = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> AdamW:
    """Return AdamW over all parameters; only matrices decay."""
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
    return AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)
