"""Predicted IDs: the task's coupling, supplied during generation by the model itself."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.ids.coupled import RELABELLINGS, Coupled
from longreach.seeding import Draws
from longreach.tasks import Sample, Task
from longreach.tasks.relabelling import within_prompt


@register("ids", "predicted")
@dataclass(frozen=True, kw_only=True)
class Predicted(Coupled):
    """Predictive position coupling (Golowich et al., ICML 2025): the prompt has the task's coupled IDs, and the
    model predicts the ID of every token it writes.  Needs `model.position_head`.

    Training relabels as `coupled` does, but IDs beyond the prompt's largest go on by 1.
    """

    paper = "Golowich et al., ICML 2025"

    def check(self, task: Task, longest: Sample) -> None:
        super().check(task, longest)
        in_prompt = torch.arange(longest.tokens.shape[1]) < longest.prompt_tokens[:, None]
        known = self.assign(task, longest.prompt_only())
        if ((known != self.assign(task, longest)) & in_prompt[:, None]).any():
            raise BadInput(f"the IDs of a prompt of {task.name} give a part of the answer away: no rule knows them")

    def relabel_level(self, sample: Sample, ids: Int[Tensor, "b n"], draws: Draws) -> Int[Tensor, "b n"]:
        place = torch.arange(ids.shape[1], device=ids.device) % sample.tokens.shape[1]  # levels stand side by side
        in_prompt = place < sample.prompt_tokens[:, None]
        return within_prompt(RELABELLINGS[self.relabelling], ids, in_prompt, self.max_id, draws)

    def supplier(self, task: Task) -> str:
        return "model"

    def serves_generation(self, task: Task) -> bool:
        return True

    @property
    def needs_rule(self) -> bool:
        return False
