"""Loss against k: how well a target is predicted when only the k tokens that help it most are kept."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.probe.language_model import LanguageModel
from longreach.probe.progress import Progress
from longreach.probe.retention import retained_log_probabilities


def tried_sizes(largest: int) -> tuple[int, ...]:
    """0, 1, 2, 4, 8, ... up to `largest`."""
    powers = [1 << power for power in range(largest.bit_length())]
    return (0, *powers) if powers[-1] == largest else (0, *powers, largest)


def top_tokens(
    weights: Float[Tensor, "n t"], targets: Int[Tensor, "n"], always: Bool[Tensor, "n t"], k: int
) -> Bool[Tensor, "n t"]:
    """The k tokens of the largest weights; of equal ones, such as none, the nearest to the target come first."""
    index = torch.arange(weights.shape[1], device=weights.device)
    free = ~always & (index < targets[:, None])
    worth = weights.masked_fill(~free, -torch.inf).flip(1)
    best = weights.shape[1] - 1 - worth.argsort(dim=1, descending=True, stable=True)[:, :k]
    return torch.zeros_like(free).scatter(1, best, True) & free


def loss_by_size(
    model: LanguageModel,
    tokens: Int[Tensor, "t"],
    targets: Int[Tensor, "n"],
    weights: Float[Tensor, "n t"],
    always: Bool[Tensor, "n t"],
    sizes: tuple[int, ...],
    window: int,
    progress: Progress,
) -> Float[Tensor, "n s"]:
    losses = [
        -retained_log_probabilities(model, tokens, targets, top_tokens(weights, targets, always, k), window, progress)
        for k in sizes
    ]
    return torch.stack(losses, dim=1)
