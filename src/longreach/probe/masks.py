"""Random masks: which tokens of a text are kept.  One mask hides the same tokens from every token after them, so one
masked forward pass answers for all targets of a text at once."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.probe.language_model import LanguageModel
from longreach.probe.progress import Progress
from longreach.probe.settings import ProbeConfig
from longreach.seeding import stream


def draw_masks(config: ProbeConfig, purpose: str, count: int, length: int) -> Bool[Tensor, "{count} {length}"]:
    """True where a token is kept.  A mask depends on its number alone, not on how many are drawn."""
    draws = stream(config.seed, f"probe/{purpose}", torch.arange(count))
    chance = torch.full((count, 1), config.keep, dtype=torch.float64)
    if config.mask_kind == "range":
        chance = config.keep + (1 - config.keep) * draws.uniform("chance", 1)
    return draws.uniform("keep", length) < chance


def always_seen(targets: Int[Tensor, "n"], length: int, window: int) -> Bool[Tensor, "n {length}"]:
    """The tokens that no mask hides from a target: the first one, the one read last and the window that ends there."""
    index = torch.arange(length, device=targets.device)
    read_last = targets[:, None] - 1
    return (index == 0) | ((index <= read_last) & (index > read_last - window))


def seen_by(kept: Bool[Tensor, "b t"], positions: Int[Tensor, "#b t"], window: int) -> Bool[Tensor, "b t t"]:
    """[row, i, j]: token i sees token j, if it is earlier.  The first token is seen by all, and so is the window."""
    distance = positions[:, :, None] - positions[:, None, :]
    return (kept | (positions == 0))[:, None, :] | ((distance >= 0) & (distance < window))


@torch.no_grad()
def masked_log_probabilities(
    model: LanguageModel,
    tokens: Int[Tensor, "t"],
    targets: Int[Tensor, "n"],
    kept: Bool[Tensor, "m t"],
    window: int,
    progress: Progress,
) -> Float[Tensor, "m n"]:
    """What each target's log-probability becomes under each mask."""
    positions = torch.arange(len(tokens), device=tokens.device)[None]
    rows = model.rows(len(tokens), len(targets))
    found = []
    for some in torch.split(kept.to(tokens.device), rows):
        keep = seen_by(some, positions, window)
        found.append(model.log_probabilities(tokens.expand(len(some), -1), targets, keep))
        progress(len(some))
    return torch.cat(found)
