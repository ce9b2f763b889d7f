"""The loss of a dependency head: cross-entropy to the tokens that an answer token depends on."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.model import Model
from longreach.objectives.base import Batch, ForwardPass, Objective


@register("objective", "dependencies")
@dataclass(frozen=True, kw_only=True)
class DependencyLoss(Objective):
    """Cross-entropy to the tokens that an answer token depends on, an even share each.  Default for models with a
    dependency head."""

    logged_as = "dependency_loss"

    @classmethod
    def is_default(cls, model: Model) -> bool:
        return model.dependency_head is not None

    def check(self, model: Model, batch: Batch) -> None:
        if model.dependency_head is None:
            raise BadInput("train.objectives: dependencies needs model.dependency_head")
        batch.map(lambda tensor: tensor[:1]).depends_on()  # or the task raises

    def losses(self, model: Model, forward: ForwardPass) -> Float[Tensor, "b"]:
        assert model.dependency_head is not None
        assert forward.hidden is not None
        assert forward.past is not None
        at, valid, _ = forward.places
        memory = model.dependency_head.remember(forward.hidden, model.embed(forward.past.tokens))
        weights = model.dependency_head(forward.states, at + 1, memory)
        depends_on = forward.batch.depends_on()
        needed = depends_on[:, 1:, :-1].gather(1, at[..., None].expand_as(weights)) & valid[..., None]
        share = needed / needed.sum(-1, keepdim=True).clamp(min=1)
        found: Tensor = -(share * weights.masked_fill(~needed, 0)).sum((1, 2))
        return found
