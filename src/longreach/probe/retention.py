"""How likely a target is when only a few chosen tokens are seen, a set of its own for each target.

No other token sees a hidden one, so it may as well not be there: only the kept tokens are put through the model, at
their own positions.  A local window relays what hidden tokens hold, so with one, and for models whose attention counts
tokens, the hidden ones stay in the sequence and are masked.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from longreach.probe.language_model import LanguageModel
from longreach.probe.masks import always_seen, seen_by
from longreach.probe.progress import Progress


@torch.no_grad()
def retained_log_probabilities(
    model: LanguageModel,
    tokens: Int[Tensor, "t"],
    targets: Int[Tensor, "n"],
    kept: Bool[Tensor, "n t"],
    window: int,
    progress: Progress,
) -> Float[Tensor, "n"]:
    """One target and one set of kept tokens in each row; what is always seen is kept too."""
    index = torch.arange(len(tokens), device=tokens.device)
    kept = (kept.to(tokens.device) | always_seen(targets, len(tokens), window)) & (index < targets[:, None])
    leave_out = model.exact_when_left_out and window == 1
    present = kept | (index == targets[:, None]) if leave_out else index <= targets[:, None]
    found = torch.empty(len(targets), device=tokens.device)
    sizes = present.sum(1)
    # rows of like size together need little padding
    for some in torch.split(sizes.argsort(), model.rows(int(sizes.max()), 1)):
        found[some] = _one_batch(model, tokens, [index[row] for row in present[some]], kept[some], window)
        progress(len(some))
    return found


def _one_batch(
    model: LanguageModel, tokens: Int[Tensor, "t"], places: list[Tensor], kept: Bool[Tensor, "b t"], window: int
) -> Float[Tensor, "b"]:
    """Rows are padded on the left, so that each ends with its target."""
    positions = pad_sequence(places, batch_first=True, padding_value=-1, padding_side="left")
    real = positions >= 0
    positions = positions.clamp(min=0)
    seen = seen_by(kept.gather(1, positions), positions, window) & real[:, None, :]
    last = torch.tensor([positions.shape[1] - 1], device=tokens.device)
    return model.log_probabilities(tokens[positions], last, seen, positions)[:, 0]
