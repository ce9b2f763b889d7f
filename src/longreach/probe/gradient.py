"""Gradient times input: to first order, what a target loses when a token's embedding shrinks to nothing."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.probe.language_model import LanguageModel
from longreach.probe.progress import Progress


def gradient_times_input(
    model: LanguageModel, tokens: Int[Tensor, "t"], targets: Int[Tensor, "n"], progress: Progress
) -> Float[Tensor, "n t"]:
    """One forward pass for all targets and a backward pass for each."""
    embedded: list[Tensor] = []

    def watch(module: nn.Module, given: Any, made: Tensor) -> Tensor:
        embedded.append(made.detach().requires_grad_())
        return embedded[0]

    hook = model.embedding.register_forward_hook(watch)
    try:
        with torch.enable_grad():
            log_p = model.log_probabilities(tokens[None], targets)[0]
    finally:
        hook.remove()
    weights = torch.zeros(len(targets), len(tokens), device=tokens.device)
    for row, one in enumerate(log_p):
        (slope,) = torch.autograd.grad(one, embedded[0], retain_graph=row + 1 < len(log_p))
        weights[row, :-1] = (slope * embedded[0]).sum(-1)[0].float()
        progress(1)
    return weights.detach()
