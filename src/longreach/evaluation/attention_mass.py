"""Attention mass on the tokens that a step of an answer truly depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention import Attention
from longreach.evaluation.look_inside import attention_weights
from longreach.evaluation.measures import refuse_overflow
from longreach.objectives import token_targets
from longreach.tasks import Sample, Task

DEPENDENCIES = 4
"""Steps with at most so many dependencies are also measured for each of them."""
WEIGHTS = 1 << 24
"""Attention weights that are held at once."""

PerHead: TypeAlias = Float[Tensor, "b layers heads kinds"]
"""Values by sample, layer and head: of the sum over all dependencies, then of the first, the second, ..."""


@dataclass(frozen=True)
class StepNeeds:
    """The dependencies of the steps of a batch.

    A step starts from a token and predicts the next one.  The token that it starts from is not counted among its
    dependencies: the residual stream carries it without attention.
    """

    rows: slice
    """Places of the queries, from the first to the last step of any sample."""
    needed: Bool[Tensor, "b n t"]
    places: Int[Tensor, "b n d"]
    """Place of each of the first dependencies."""
    counted: Bool[Tensor, "b n kinds"]
    """Steps with a dependency, then steps that have a first, a second, ... and at most `DEPENDENCIES`."""
    even: Float[Tensor, "b n kinds"]
    """Mass of attention that is even over all tokens read."""

    @classmethod
    def of(cls, task: Task, sample: Sample) -> "StepNeeds":
        targets = token_targets(sample)
        found = targets.any(0).nonzero()[:, 0]
        first, last = int(found[0]), int(found[-1]) + 1
        needed = task.depends_on(sample)[:, 1:, :-1][:, first:last] & targets[:, first:last, None]
        needed = needed.tril(first - 1)
        so_far = needed.cumsum(-1, dtype=torch.int32)
        number = torch.arange(1, DEPENDENCIES + 1, device=needed.device, dtype=torch.int32)
        places = torch.searchsorted(so_far, number.expand(*needed.shape[:2], -1).contiguous())
        count = so_far[..., -1:]
        counted = torch.cat([count > 0, (number <= count) & (count <= DEPENDENCIES)], dim=-1)
        visible = torch.arange(first + 1, last + 1, device=needed.device)[:, None]
        even = torch.cat([count, torch.ones_like(places)], dim=-1) / visible
        return cls(slice(first, last), needed, places.clamp(max=needed.shape[2] - 1), counted, even)

    def mean(self, values: Float[Tensor, "b n kinds"]) -> Float[Tensor, "b kinds"]:
        """Return the mean over the steps of each sample; 0 where none counts."""
        total = values.masked_fill(~self.counted, 0).double().sum(1)
        return total / self.counted.sum(1).clamp(min=1)


class MassHook:
    """Reduces attention weights to the mass on the dependencies, a block of queries at a time."""

    def __init__(self, needs: StepNeeds) -> None:
        self.needs = needs
        self.mean: list[Float[Tensor, "b heads kinds"]] = []
        """Mean over the steps of each sample, for each layer."""
        self.lowest: list[Float[Tensor, "b heads kinds"]] = []

    def __call__(self, mix: Attention, seen: tuple[Any, ...], mixed: Tensor) -> None:
        q, k, _, visible, mask, bias = seen
        needs, (b, h) = self.needs, q.shape[:2]
        kinds = needs.counted.shape[2]
        total = torch.zeros(b, h, kinds, dtype=torch.float64, device=q.device)
        lowest = torch.full_like(total, torch.inf)
        copies = 1 if bias is None else bias.copies
        size = max(1, WEIGHTS // (b * h * k.shape[2] * copies))
        steps = needs.needed.shape[1]
        for start in range(0, steps, size):
            part = slice(start, min(start + size, steps))
            queries = slice(needs.rows.start + part.start, needs.rows.start + part.stop)
            weights = attention_weights(mix, q, k, visible, mask, bias, queries)
            of_all = torch.einsum("bhnk,bnk->bhn", weights, needs.needed[:, part].to(weights.dtype))
            of_each = weights.gather(3, needs.places[:, None, part].expand(-1, h, -1, -1))
            mass = torch.cat([of_all[..., None], of_each], dim=-1).double()
            skipped = ~needs.counted[:, None, part]
            total += mass.masked_fill(skipped, 0).sum(2)
            lowest = lowest.minimum(mass.masked_fill(skipped, torch.inf).amin(2))
        self.mean.append(total / needs.counted.sum(1).clamp(min=1)[:, None])
        self.lowest.append(lowest)


@dataclass(frozen=True)
class Mass:
    """Attention mass of a cell, by sample."""

    mean: PerHead
    lowest: PerHead
    steps: Int[Tensor, "b kinds"]
    even: Float[Tensor, "b kinds"]


def mass_of(hook: MassHook) -> Mass:
    """Return the mass of a batch after its forward pass."""
    mean, lowest = (torch.stack(layers, dim=1).cpu() for layers in (hook.mean, hook.lowest))
    return Mass(mean, lowest, hook.needs.counted.sum(1).cpu(), hook.needs.mean(hook.needs.even).cpu())


def join(masses: Sequence[Mass]) -> Mass:
    """Join the batches of a cell."""
    columns = zip(*((mass.mean, mass.lowest, mass.steps, mass.even) for mass in masses), strict=True)
    joined = Mass(*(torch.cat(column) for column in columns))
    refuse_overflow(joined.mean)
    return joined
