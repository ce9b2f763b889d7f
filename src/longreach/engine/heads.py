"""The heads of a model, each computed by the faster paths that a plan has chosen for it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.attention import exact_dtype
from longreach.engine.stacking import StackedLinear, stacked_class
from longreach.model import Model
from longreach.model.position_heads.base import Features, Steps
from longreach.model.position_heads.pointer import Pointer, Pointing

LARGE_VOCABULARY = 1024
"""Tokens from which a kernel computes cross-entropy: torch writes fewer logits out quickly."""
MOST_COLUMNS = 4096
"""The widest unit vector: a program holds it."""
MOST_MOVES = 64
"""The most moves of an ID: a program holds their probabilities."""


class FastPointer(Pointer):
    """A pointer head whose loss is computed by kernels that keep no score in memory."""

    def remember(self, hidden: Float[Tensor, "b t w"], tokens: Float[Tensor, "b t w"]) -> Float[Tensor, "b t m"]:
        keys: Tensor = self.keys(torch.cat([hidden, tokens], dim=-1))
        return self._direction(keys, tokens if self.add_token else None) if self.normalise else keys

    def log_probabilities(
        self, steps: Steps, targets: Int[Tensor, "b g a"], last: int | None
    ) -> list[Float[Tensor, "b a"]]:
        if last is not None:
            return super().log_probabilities(steps, targets, last)
        raw, mixed = self.features(steps)
        memories = self.by_level(steps.memory)
        found = []
        for number, level in enumerate(self.levels):
            target = targets[:, number]
            if isinstance(level, Pointing):
                found.append(self._log_probability(steps, number, level, raw, mixed, memories[number], target))
            else:
                found.append(self.class_choice(steps, number, mixed).log_probability(target))
        return found

    def _log_probability(
        self,
        steps: Steps,
        number: int,
        level: Pointing,
        raw: Float[Tensor, "b a f"],
        mixed: Float[Tensor, "b a w"],
        memory: Float[Tensor, "b t w"],
        target: Int[Tensor, "b a"],
    ) -> Float[Tensor, "b a"]:
        """Return the log-probability of the target at one level that grows."""
        from longreach.engine.fused.pointing import LevelIds, log_probability  # needs Triton

        query: Tensor = level.query(raw)
        if self.normalise:
            query = self._direction(query, steps.token if level.config.see_token and self.add_token else None)
        integers = (
            steps.visible,
            target,
            steps.reserved[:, number],
            steps.reachable[number],
            self.other_levels(steps, number),
        )
        asked = LevelIds(*(tensor.contiguous() for tensor in integers))
        return log_probability(
            query,
            memory,
            level.special(mixed),
            level.move(mixed),
            level.log_scale,
            level.slope,
            asked,
            level.config.kind_first,
            1.0 if self.normalise else self.width**-0.5,
            _dtype_of_products(query),
        )

    def _direction(self, x: Float[Tensor, "b t m"], token: Float[Tensor, "b t w"] | None) -> Float[Tensor, "b t m"]:
        from longreach.engine.fused.direction import direction  # needs Triton

        return direction(x, token, self.width, _dtype_of_products(x))


def why_not_fast(model: Model) -> str:
    """Return the reason why no kernel computes the pointer head of a model; empty without any."""
    head = model.position_head
    if not isinstance(head, Pointer):
        return "the model has no pointer head"
    if model.largest_id is not None:
        return f"the encoding knows no ID beyond {model.largest_id}"
    ours = (Pointer, Pointing, stacked_class(Pointing), Features, nn.ModuleList, nn.Linear, StackedLinear)
    for part in head.modules():
        if type(part) not in ours:
            return f"{type(part).__name__} is a part of another class"
    if head.width > MOST_COLUMNS:
        return f"the width is above {MOST_COLUMNS}"
    return f"an ID has more than {MOST_MOVES} moves" if len(head.moves) > MOST_MOVES else ""


def _dtype_of_products(x: Tensor) -> torch.dtype:
    """Return the precision that products of these numbers have under the caller's autocast."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else exact_dtype(x)
