"""Coupled IDs: tokens that belong together share an ID."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.ids.base import IdPolicy
from longreach.seeding import Draws
from longreach.tasks import Form, Sample, Task
from longreach.tasks.relabelling import increasing, offset, skips

RELABELLINGS = {"increasing": increasing, "offset": offset, "skips": skips}


@register("ids", "coupled")
@dataclass(frozen=True, kw_only=True)
class Coupled(IdPolicy):
    """The task's coupling, where a rule gives it from the prompt, or from the tokens written so far
    (Cho et al., NeurIPS 2024).

    Increasing relabelling and the aligned form as a general principle are ours.
    """

    paper = "Cho et al., NeurIPS 2024"

    form: Form = "aligned"
    """published, or aligned: a step shares its ID with what it must read."""
    relabelling: Literal["increasing", "offset", "skips", "none"] = "increasing"
    """What training does to the IDs: a random increasing map, a random offset, an offset with one skip (as PoSE has
    between two chunks), nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relabelling != "none" and self.max_id < 1:
            raise ValueError(
                f"{self.name}.max_id must be at least 1 with {self.relabelling} relabelling, got {self.max_id}"
            )

    def check(self, task: Task, longest: Sample) -> None:
        if not task.coupling_levels:
            raise BadInput(f"{task.name} has no known coupling: use another ID policy than {self.name}")
        if self.needs_rule and not (task.coupling_by_rule or task.coupling_by_tokens):
            raise BadInput(
                f"the coupled IDs of {task.name} depend on the answer, so no rule supplies them during generation;"
                " `predicted` lets the model supply them, `oracle` shows what they would give"
            )
        used = int(self.assign(task, longest).max())
        if self.relabelling != "none" and used > self.max_id:
            raise BadInput(f"{self.name}.max_id={self.max_id} is too small: samples have {used} IDs")

    def level_sizes(self, task: Task) -> tuple[int, ...]:
        return tuple(level.size for level in task.coupling_levels)

    def assign(self, task: Task, sample: Sample) -> Int[Tensor, "b g t"]:
        return task.coupling(sample, self.form)

    def relabel(self, task: Task, sample: Sample, ids: Int[Tensor, "b g t"], draws: Draws) -> Int[Tensor, "b g t"]:
        if self.relabelling == "none":
            return ids
        relabelled = list(ids.unbind(1))
        spaces: dict[str, list[int]] = {}
        for number, level in enumerate(task.coupling_levels):
            if level.grows:
                spaces.setdefault(level.space or level.name, []).append(number)
        for space, levels in spaces.items():
            beside = torch.cat([relabelled[number] for number in levels], dim=1)  # one map for all levels of a space
            mapped = self.relabel_level(sample, beside, draws.child(space)).chunk(len(levels), dim=1)
            for number, one in zip(levels, mapped, strict=True):
                relabelled[number] = one
        return torch.stack(relabelled, dim=1)

    def relabel_level(self, sample: Sample, ids: Int[Tensor, "b n"], draws: Draws) -> Int[Tensor, "b n"]:
        """Relabel a level that grows, or several levels of one space side by side."""
        return RELABELLINGS[self.relabelling](ids, self.max_id, draws)

    def supplier(self, task: Task) -> str:
        return "tokens" if task.coupling_by_tokens else "rule"

    def follow(self, task: Task, token: Int[Tensor, "b"], before: Int[Tensor, "b g"]) -> Int[Tensor, "b g"]:
        return task.follow_coupling(token, before)

    def serves_generation(self, task: Task) -> bool:
        return task.coupling_by_rule or task.coupling_by_tokens

    @property
    def needs_rule(self) -> bool:
        """Whether the task must give the IDs of the answer by a rule."""
        return True


@register("ids", "oracle")
@dataclass(frozen=True, kw_only=True)
class Oracle(Coupled):
    """The task's coupling read off the true answer: for study, with the true prefix given at every step."""

    def supplier(self, task: Task) -> str:
        return "oracle"

    def serves_generation(self, task: Task) -> bool:
        return False

    @property
    def needs_rule(self) -> bool:
        return False
