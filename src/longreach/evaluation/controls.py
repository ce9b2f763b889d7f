"""Controls: what a model does with IDs that it should not be able to use, or that should make no difference."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.positions.ids import IdPolicy
from longreach.seeding import Draws, stream
from longreach.tasks import Sample, Task

Control = Literal["none", "shuffled", "off_by_one"]


@dataclass(frozen=True, kw_only=True)
class SpoiltIds(IdPolicy):
    """A policy whose IDs are spoilt in the prompt.  A result that survives this did not need the IDs."""

    of: IdPolicy
    control: Control

    def assign(self, task: Task, sample: Sample) -> Int[Tensor, "b g t"]:
        return self._spoil(self.of.assign(task, sample), sample)

    @property
    def draws_test_ids(self) -> bool:
        return self.of.draws_test_ids

    def check_test(self, task: Task, num_tokens: int) -> None:
        self.of.check_test(task, num_tokens)

    def evaluation_ids(self, task: Task, sample: Sample, draws: Draws | None = None) -> Int[Tensor, "b g t"]:
        return self._spoil(self.of.evaluation_ids(task, sample, draws), sample)

    def _spoil(self, ids: Int[Tensor, "b g t"], sample: Sample) -> Int[Tensor, "b g t"]:
        """Spoil the IDs of the prompt."""
        index = torch.arange(ids.shape[2], device=ids.device).expand(len(ids), -1)
        in_prompt = index < sample.prompt_tokens[:, None]
        if self.control == "off_by_one":  # every token has the ID of the token before it
            source = (index - 1) % sample.prompt_tokens[:, None]
        else:
            # numbered by what the prompt says, so that a sample is shuffled alike in every batch
            number = (sample.tokens.masked_fill(~in_prompt, 0) * (2 * index + 1)).sum(1)
            keys = stream(0, "control/shuffled", number).bits("order", ids.shape[2])
            source = keys.masked_fill(~in_prompt, torch.iinfo(torch.int64).max).argsort(1)
        source = torch.where(in_prompt, source, index)
        return ids.gather(2, source[:, None].expand_as(ids))

    def level_sizes(self, task: Task) -> tuple[int, ...]:
        return self.of.level_sizes(task)

    def supplier(self, task: Task) -> str:
        return self.of.supplier(task)

    def serves_generation(self, task: Task) -> bool:
        return self.of.serves_generation(task)

    @property
    def name(self) -> str:
        return f"{self.of.name}, {self.control}"


def spoil(policy: IdPolicy, control: Control) -> IdPolicy:
    return policy if control == "none" else SpoiltIds(of=policy, control=control, max_id=policy.max_id)
