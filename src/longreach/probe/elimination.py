"""A smallest set that is enough: hide the least needed tokens together, again and again, while the loss allows it.

One token at a time shows nothing where two tokens say the same, for either can be missed; and a linear model of random
masks shows nothing where several tokens matter only together.  Elimination finds both, at a cost for every target.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.probe.language_model import LanguageModel
from longreach.probe.progress import Progress, silent
from longreach.probe.retention import retained_log_probabilities


def eliminate(
    model: LanguageModel,
    tokens: Int[Tensor, "t"],
    targets: Int[Tensor, "n"],
    full: Float[Tensor, "n"],
    first_losses: Float[Tensor, "n t"],
    always: Bool[Tensor, "n t"],
    eps: float,
    window: int,
    progress: Progress,
) -> Float[Tensor, "n t"]:
    """What each target loses when one more token of its last set is hidden; 0 for tokens outside that set.

    `first_losses`: the same with all tokens there.  The last set is minimal: without its least needed token the loss
    is more than `eps` above that in full context.
    """
    weights = torch.zeros_like(first_losses)
    index = torch.arange(len(tokens), device=tokens.device)
    for row, target in enumerate(targets):

        def log_p(kept: Bool[Tensor, "m t"], target: Tensor = target) -> Float[Tensor, "m"]:
            return retained_log_probabilities(model, tokens, target.expand(len(kept)), kept, window, silent)

        enough = full[row] - eps
        left = index[~always[row] & (index < target)]
        losses = first_losses[row, left]
        drop = (len(left) + 1) // 2
        while drop > 0 and len(left) > 0:
            fewer = left[losses.argsort(stable=True)[drop:]].sort().values
            kept = _only(fewer, len(tokens))
            reached = log_p(kept[None])[0]
            if reached < enough:
                drop //= 2
                continue
            left, drop = fewer, min(drop, (len(fewer) + 1) // 2)
            if len(left):
                without = kept & (index != left[:, None])
                losses = reached - log_p(without)
        if len(left):
            weights[row, left] = losses
        progress(1)
    return weights


def _only(places: Int[Tensor, "k"], length: int) -> Bool[Tensor, "{length}"]:
    kept = torch.zeros(length, dtype=torch.bool, device=places.device)
    kept[places] = True
    return kept
