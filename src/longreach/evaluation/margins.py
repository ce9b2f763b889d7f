"""Margins of the true next ID and the true next token, under the true prefix."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.evaluation.exact_match import parts_of
from longreach.evaluation.measures import LARGEST_MARGIN, refuse_overflow
from longreach.model import IdChoice, Model, Past, at_places
from longreach.objectives import id_choices, id_targets, select, token_targets
from longreach.tasks import Sample

_COPIES = 40
"""Numbers held of each pair of a step and a candidate ID, with some room."""


def id_margins(choice: IdChoice, target: Int[Tensor, "b a"]) -> Float[Tensor, "b a"]:
    """Return the log-probability of an ID minus the largest of another one, in nats, clipped to `LARGEST_MARGIN`.

    The probability of an ID is the sum over its candidates.
    """
    ids = choice.ids.broadcast_to(*choice.ids.shape[:2], choice.logits.shape[2]).contiguous()
    ordered, order = ids.sort(-1)
    rank = torch.nn.functional.pad(ordered.diff(dim=-1) != 0, (1, 0)).cumsum(-1)
    which = torch.empty_like(order).scatter_(-1, order, rank)  # the same number for candidates of one ID
    distinct = ids.new_zeros(*ids.shape[:2], int(rank.max()) + 1).scatter_(-1, which, ids)
    parts = (choice.logits - choice.logits.amax(-1, keepdim=True)).exp()
    summed = parts.new_zeros(*parts.shape[:2], distinct.shape[2]).scatter_add_(-1, which.expand(parts.shape), parts)
    is_target = distinct == target[..., None]
    of_target, of_others = (summed.masked_fill(hidden, 0) for hidden in (~is_target, is_target))
    margin = of_target.amax(-1).log() - of_others.amax(-1).log()
    return margin.clamp(-LARGEST_MARGIN, LARGEST_MARGIN)


def token_margins(logits: Float[Tensor, "b a v"], target: Int[Tensor, "b a"]) -> Float[Tensor, "b a"]:
    """Return the logit of a token minus the largest of another one, clipped to `LARGEST_MARGIN`."""
    of_target = logits.gather(2, target[..., None])[..., 0]
    of_others = logits.scatter(2, target[..., None], -torch.inf).amax(-1)
    return (of_target - of_others).clamp(-LARGEST_MARGIN, LARGEST_MARGIN)


def margins_of_ids(
    model: Model,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    hidden: Float[Tensor, "b s w"],
    past: Past,
    reserved: int,
) -> list[Float[Tensor, "b a"]]:
    """Return the margins of the IDs of each level, of all tokens of the answer but the last, which is never read."""
    wanted = id_targets(sample)
    places, valid = select(wanted)
    found: list[list[Tensor]] = [[] for _ in range(ids.shape[1])]
    for part in parts_of(places, wanted, _COPIES):
        at = places[:, part]
        for level, choice in enumerate(id_choices(model, sample, ids, hidden, at, past, reserved)):
            found[level].append(id_margins(choice, ids[:, level, 1:].gather(1, at)))
    return [_margins(parts, valid, places) for parts in found]


def margins_of_tokens(
    model: Model, sample: Sample, hidden: Float[Tensor, "b s w"], past: Past | None
) -> Float[Tensor, "b a"]:
    """Return the margins of all answer tokens that are predicted."""
    wanted = token_targets(sample)
    places, valid = select(wanted)
    found = []
    for part in parts_of(places, wanted, copies=max(1, 3 * len(model.embed.weight) // wanted.shape[1])):
        at = places[:, part]
        logits = model.logits(at_places(hidden, at), at + 1, past).float()
        found.append(token_margins(logits, sample.tokens[:, 1:].gather(1, at)))
    return _margins(found, valid, places)


def _margins(
    parts: list[Float[Tensor, "b _"]], valid: Bool[Tensor, "b a"], places: Int[Tensor, "b a"]
) -> Float[Tensor, "b a"]:
    """Join margins of parts of the places."""
    values = torch.cat(parts, dim=1) if parts else torch.zeros_like(places, dtype=torch.float32)
    refuse_overflow(values[valid])
    return values.float().masked_fill(~valid, torch.nan).cpu()
