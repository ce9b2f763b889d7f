"""What an ID policy is: it turns a sample into position IDs, and relabels them in training."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config import PositionId, Settings
from longreach.config.registry import kind, name_of
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks import Sample, Task


@kind("ids")
@dataclass(frozen=True, kw_only=True)
class IdPolicy(Settings):
    """Base of all ID policies.  A subclass must give `assign`; `relabel` is the identity by default."""

    paper: ClassVar[str] = ""
    """Where it comes from; empty where it is ours."""

    max_id: PositionId = 0
    """The largest ID that training shows; 0 where training shows only what `assign` gives."""

    def __post_init__(self) -> None:
        if self.max_id < 0:
            raise ValueError(f"{self.name}.max_id must not be negative, got {self.max_id}")

    def check(self, task: Task, longest: Sample) -> None:
        """Refuse what the policy cannot serve, or relabel; `longest` holds samples of the longest length."""

    def level_sizes(self, task: Task) -> tuple[int, ...]:
        """For each ID that a token has, the largest one, or 0 where it grows with length."""
        return (0,)

    def assign(self, task: Task, sample: Sample) -> Int[Tensor, "b g t"]:
        """Plain IDs, as evaluation uses them.  In generation the sample holds the prompt only."""
        raise BadInput(f"{self.name} does not say how to assign IDs")

    def relabel(self, task: Task, sample: Sample, ids: Int[Tensor, "b g t"], draws: Draws) -> Int[Tensor, "b g t"]:
        """IDs for one training step, drawn anew each time."""
        return ids

    @property
    def draws_test_ids(self) -> bool:
        """Return whether evaluation draws IDs for each sample; if so, `evaluation_ids` needs `draws`."""
        return False

    def check_test(self, task: Task, num_tokens: int) -> None:
        """Refuse test samples of up to `num_tokens` tokens if the policy has too few IDs for them."""

    def evaluation_ids(self, task: Task, sample: Sample, draws: Draws | None = None) -> Int[Tensor, "b g t"]:
        """Return the IDs that evaluation and generation use; padding has ID 0.

        `draws` numbers the samples.  Only policies with `draws_test_ids` read it, and they refuse None.
        """
        return without_padding(self.assign(task, sample), sample)

    def training_ids(self, task: Task, sample: Sample, draws: Draws) -> Int[Tensor, "b g t"]:
        """What one training step uses; padding has ID 0."""
        return without_padding(self.relabel(task, sample, self.assign(task, sample), draws), sample)

    def supplier(self, task: Task) -> str:
        """Who supplies the IDs of generated tokens: `count`, `rule`, `tokens` (see `follow`), `model` or `oracle`."""
        return "count"

    def follow(self, task: Task, token: Int[Tensor, "b"], before: Int[Tensor, "b g"]) -> Int[Tensor, "b g"]:
        """IDs of a token just written, from itself and the IDs of the one before: where `tokens` supply them."""
        raise BadInput(f"{self.name} does not say how IDs follow from tokens")

    def serves_generation(self, task: Task) -> bool:
        """Whether `assign` needs the prompt only, or the model supplies the rest."""
        return True

    @property
    def name(self) -> str:
        return name_of(type(self))


def without_padding(ids: Int[Tensor, "b g t"], sample: Sample) -> Int[Tensor, "b g t"]:
    """Set the IDs of padding to 0: a policy may count beyond the end of a short row, and out of a table."""
    index = torch.arange(ids.shape[2], device=ids.device)
    return ids.masked_fill((index >= sample.num_tokens[:, None])[:, None], 0)
