"""One token hidden at a time: one forward pass per token, for all targets together."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.probe.language_model import LanguageModel
from longreach.probe.masks import masked_log_probabilities
from longreach.probe.progress import Progress


def leave_one_out(
    model: LanguageModel,
    tokens: Int[Tensor, "t"],
    targets: Int[Tensor, "n"],
    full: Float[Tensor, "n"],
    window: int,
    progress: Progress,
) -> Float[Tensor, "n t"]:
    """What each target loses when one token is hidden; the first token, and those after the last read, never are."""
    hidden = torch.arange(1, int(targets.max()) - 1, device=tokens.device)
    kept = torch.arange(len(tokens), device=tokens.device) != hidden[:, None]
    weights = torch.zeros(len(targets), len(tokens), device=tokens.device)
    if len(hidden):
        weights[:, hidden] = (full - masked_log_probabilities(model, tokens, targets, kept, window, progress)).T
    return weights
