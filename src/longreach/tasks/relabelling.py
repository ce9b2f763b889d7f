"""Random increasing maps of IDs, so that training meets every ID and every gap that a test can meet."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.seeding import Draws

Limit = int | Tensor
"""The largest ID: one for all, or one per sample [b, 1]."""


def offset(ids: Int[Tensor, "b t"], max_id: Limit, draws: Draws) -> Int[Tensor, "b t"]:
    """Shift all but the reserved ID 0 by one number per sample, so that the largest stays at most max_id."""
    room = (max_id - ids.amax(1, keepdim=True)).clamp(min=0)
    return torch.where(ids > 0, ids + draws.below("offset", room + 1, 1), 0)


def skips(ids: Int[Tensor, "b t"], max_id: Limit, draws: Draws) -> Int[Tensor, "b t"]:
    """Shift the IDs up to a uniform cut by one number and those behind it by a larger one, as PoSE does with two
    chunks."""
    largest = ids.amax(1, keepdim=True)
    room = (max_id - largest).clamp(min=0)
    first = draws.below("first", room + 1, 1)
    second = first + draws.below("second", room - first + 1, 1)
    cut = 1 + draws.below("cut", largest.clamp(min=1), 1)
    return torch.where(ids > 0, ids + torch.where(ids > cut, second, first), 0)


def increasing(ids: Int[Tensor, "b t"], max_id: Limit, draws: Draws) -> Int[Tensor, "b t"]:
    """Map 1..m to an increasing sequence in 1..max_id; 0 stays reserved.

    The span of the image is log-uniform between m and max_id, so that dense IDs (all that evaluation shows)
    are as much a part of training as sparse ones.  Its place is uniform but for one time in ten at each end of
    the range, and its own ends are hit exactly, so that the first and the last IDs get their share; what lies
    between is uniform.
    """
    columns = ids.shape[1]  # a coupling never has more IDs than tokens
    m = ids.amax(1, keepdim=True).clamp(min=1)
    max_id = torch.zeros_like(m) + max_id
    stretch = ((max_id + 1) / m.double()) ** draws.uniform("span", 1)  # + 1: the floor below must reach max_id
    span = (m * stretch).long().minimum(max_id).maximum(m)
    room = max_id - span
    margin = room // 8
    start = (draws.below("start", room + 2 * margin + 1, 1) - margin).clamp(min=0).minimum(room)

    # m - 2 inner points among span - m free places, sorted: the extra room before each of them
    free = span - m
    index = torch.arange(columns, device=ids.device)
    inner = (index >= 1) & (index < m - 1)
    extra = draws.below("extra", free + 1, columns)
    extra = torch.where(inner, extra, torch.where(index < 1, 0, free))  # first point: none, last: all
    image = start + 1 + index + extra.sort(1).values
    # with a single ID there are no two ends to pin: it goes anywhere
    image = torch.where(m == 1, 1 + draws.below("single", max_id, 1), image)
    return torch.where(ids > 0, image.gather(1, (ids - 1).clamp(min=0)), 0)


def within_prompt(
    relabel: Callable[[Int[Tensor, "b t"], Limit, Draws], Int[Tensor, "b t"]],
    ids: Int[Tensor, "b t"],
    in_prompt: Bool[Tensor, "b t"],
    max_id: int,
    draws: Draws,
) -> Int[Tensor, "b t"]:
    """Relabel, but let IDs beyond the prompt's largest go on by 1, as they must in generation: no prompt shows what gap
    would follow."""
    top = ids.masked_fill(~in_prompt, 0).amax(1, keepdim=True)
    beyond = (ids - top).clamp(min=0)
    return relabel(ids.minimum(top), max_id - beyond.amax(1, keepdim=True), draws) + beyond


def coverage(ids: Int[Tensor, "b g t"], max_id: int, bins: int = 50) -> list[int]:
    """How often level-1 IDs fall into each of `bins` equal parts of 1..max_id (or each ID, if there are fewer)."""
    bins = min(bins, max(1, max_id))
    positive = ids[:, 0][ids[:, 0] > 0]
    part = ((positive - 1) * bins // max(1, max_id)).clamp(max=bins - 1)
    return [int(count) for count in torch.bincount(part, minlength=bins)]
