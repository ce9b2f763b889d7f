"""A training step on a CPU: clipping and AdamW by the operations of `torch.optim`, without its checks around them."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longreach.training import Step
from longreach.training.optimizer import AdamW


class CpuStep(Step):
    """A step with the results of the step that it is made from, bit for bit."""

    def __init__(self, step: Step) -> None:
        """Share everything with `step`."""
        self.__dict__ = step.__dict__
        self.parameters = list(self.model.parameters())
        self.groups: list[_Group] = []
        self._state: object = None
        """The state of the optimizer that `groups` refer to."""

    def optimize(self) -> Float[Tensor, "models"]:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2.0)), 2.0)
        if not norm <= self.max_norm:
            nn.utils.clip_grads_with_norm_(self.parameters, self.max_norm, norm)
        if self._state is not self.optimizer.state or len(gradients) < len(self.parameters):
            self.optimizer.step()  # makes the state
            self._state = self.optimizer.state
            self.groups = [_Group(self.optimizer, settings) for settings in self.optimizer.param_groups]
        else:
            for group in self.groups:
                group.update()
        return norm[None]


class _Group:
    """The parameters of a group of AdamW, and the state of each."""

    def __init__(self, optimizer: torch.optim.Optimizer, settings: dict[str, Any]) -> None:
        self.settings, self.parameters = settings, settings["params"]
        states = [optimizer.state[parameter] for parameter in self.parameters]
        self.means = [state["exp_avg"] for state in states if state]
        self.squares = [state["exp_avg_sq"] for state in states if state]
        self.steps = [state["step"] for state in states if state]

    @torch.no_grad()
    def update(self) -> None:
        if not self.parameters:
            return
        torch._foreach_add_(self.steps, 1)
        beta1, beta2 = self.settings["betas"]
        torch._fused_adamw_(
            self.parameters,
            [parameter.grad for parameter in self.parameters],
            self.means,
            self.squares,
            [],
            self.steps,
            lr=self.settings["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=self.settings["weight_decay"],
            eps=self.settings["eps"],
            amsgrad=False,
            maximize=False,
        )


def updates_alike(step: Step) -> bool:
    """Return whether `CpuStep` computes what a step does."""
    weights = {(parameter.device.type, parameter.dtype) for parameter in step.model.parameters()}
    optimizer = step.optimizer
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    return type(step) is Step and type(optimizer) in (AdamW, torch.optim.AdamW) and len(weights) == 1 and not any(hooks)
