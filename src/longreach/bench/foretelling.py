"""Weights of sources and of tokens, judged by how well they foretell what masks do.

What a side finds is written as a weight for every token (the weight of a sentence or word is shared out evenly among
its tokens); a mask of any grain is then foretold by the summed weights of the tokens that it keeps.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.probe.faithfulness import faithfulness
from longreach.probe.regression import choose_by_held_out

CHOOSING = 4
"""One in so many of our masks chooses the penalty; it counts as spent."""


def about_sides(keep: float) -> str:
    """What a reader of a comparison must know of its sides."""
    return (
        "side: what is hidden or deleted, and how many masks; ours hide keys and leave positions as they are, keep "
        f"{keep:g}, and 1 in {CHOOSING} of our masks chooses the penalty; ContextCite has its defaults"
    )


def fit_masks(
    kept: Bool[Tensor, "m s"], outcomes: Float[Tensor, "m n"], allowed: Bool[Tensor, "s n"]
) -> Float[Tensor, "n s"]:
    """Our weights of each outcome from all the masks that may be spent."""
    some = len(kept) - len(kept) // CHOOSING
    return choose_by_held_out(kept[:some], outcomes[:some], kept[some:], outcomes[some:], allowed).T


def on_tokens(kept: Bool[Tensor, "m s"], group: Int[Tensor, "t"]) -> Bool[Tensor, "m t"]:
    """Which tokens are kept; those in no group always are."""
    return kept[:, group.clamp(min=0)] | (group < 0)


def shared_out(weights: Float[Tensor, "n s"], group: Int[Tensor, "t"]) -> Float[Tensor, "n t"]:
    """Each group's weight, in equal parts on its tokens."""
    sizes = torch.bincount(group[group >= 0], minlength=weights.shape[1]).clamp(min=1)
    return (weights / sizes)[:, group.clamp(min=0)] * (group >= 0)


def lds(weights: Float[Tensor, "n t"], kept: Bool[Tensor, "m t"], true: Float[Tensor, "m n"]) -> Float[Tensor, "n"]:
    """Of each target.  Weights that tell no mask from another are no prediction: they count as 0."""
    return faithfulness(weights, kept, true).nan_to_num(0.0)
