"""The loss of a position head: cross-entropy on the position IDs of answer tokens, and feeding of predicted IDs."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.config import Share
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.model import RESERVED, IdChoice, Model, Past, at_places, prompt_ladders
from longreach.objectives.base import Batch, ForwardPass, Objective, Prepared, id_targets, select
from longreach.tasks import Sample


@register("objective", "predicted_ids")
@dataclass(frozen=True, kw_only=True)
class IdLoss(Objective):
    """Cross-entropy on the position IDs of answer tokens.  Default for models with a position head."""

    on: Literal["answer", "all"] = "answer"
    """`all` also predicts the IDs of prompt tokens, as an exercise: generation is given them."""
    feed_predicted: Share = 0.0
    """Probability, at the end of training, that an answer token is read with the ID that the model predicts for it
    instead of the true one.  Takes a second forward pass per step."""
    feed_from: Share = 0.5
    """Share of training after which that probability rises linearly from 0."""

    logged_as = "id_loss"

    def __post_init__(self) -> None:
        if not self.feed_predicted and self.feed_from != type(self).feed_from:
            raise ValueError(f"train.objectives: predicted_ids.feed_from={self.feed_from} needs feed_predicted")

    @classmethod
    def is_default(cls, model: Model) -> bool:
        return model.position_head is not None

    def check(self, model: Model, batch: Batch) -> None:
        """Raise BadInput if the head is missing, or cannot predict the true IDs: the loss would be infinite."""
        if model.position_head is None:
            raise BadInput("train.objectives: predicted_ids needs model.position_head: pointer or table")
        plain = replace(self, feed_predicted=0.0, feed_from=type(self).feed_from)
        with torch.no_grad():
            finite = plain.losses(model, ForwardPass.run(model, batch, batch.ids)).sum().isfinite()
        if not finite:
            raise BadInput(
                f"the position head cannot reach all IDs of {batch.task.name}: raise model.position_head.moves,"
                " or use another head or form of coupling"
            )

    def feeding(self, progress: "float | Float[Tensor, '']") -> "float | Float[Tensor, '']":
        """Return the probability of feeding a predicted ID after this share of training."""
        rising = (progress - self.feed_from) / max(1 - self.feed_from, 1e-9)
        clamped = rising.clamp(0, 1) if isinstance(rising, Tensor) else min(max(rising, 0.0), 1.0)
        return self.feed_predicted * clamped

    def feed(self, model: Model, batch: Batch, progress: "float | Float[Tensor, '']") -> Int[Tensor, "b g t"]:
        """Replace some IDs of the answer by those that the model predicts, given the true IDs before them."""
        if not self.feed_predicted:
            return batch.ids
        sample, ids, read = batch.sample, batch.ids, batch.sample.tokens[:, :-1]
        with torch.no_grad():
            hidden = model(read, ids[:, :, :-1])
            everywhere = torch.arange(hidden.shape[1], device=ids.device).expand(hidden.shape[:2])
            choices = id_choices(model, sample, ids, hidden, everywhere, model.past(hidden, read))
            best = torch.stack([choice.best() for choice in choices], dim=1)
        replaced = id_targets(sample) & (batch.draws.uniform("feed", hidden.shape[1]) < self.feeding(progress))
        return torch.cat([ids[:, :, :1], torch.where(replaced[:, None], best, ids[:, :, 1:])], dim=2)

    def counts(self, batch: Batch) -> Int[Tensor, "b"]:
        return id_targets(batch.sample, self.on).sum(1)

    def prepare(self, model: Model, batch: Batch, most: int | None) -> Prepared:
        sample = batch.sample
        if most is not None and self.on == "all":
            most = sample.tokens.shape[1]
        at, valid = select(id_targets(sample, self.on), most)
        following = sample.tokens[:, 1:].gather(1, at)
        targets = batch.ids[:, :, 1:].gather(2, at[:, None].expand(-1, batch.ids.shape[1], -1))
        targets = targets.masked_fill(~valid[:, None], RESERVED)  # an ID that can always be reached
        if self.feed_predicted:  # the IDs that are read depend on the model
            return at, valid, following, targets
        return at, valid, following, targets, *reachable_ids(model, sample, batch.ids)

    def losses(self, model: Model, forward: ForwardPass) -> Float[Tensor, "b"]:
        assert forward.hidden is not None
        assert forward.past is not None
        prepared = forward.prepared.get(type(self)) or self.prepare(model, forward.batch, forward.most)
        at, valid, following, targets, *reachable = prepared
        past, hidden = forward.past, at_places(forward.hidden, at)
        if self.feed_predicted:
            reserved, *reachable = reachable_ids(model, forward.batch.sample, forward.ids)
            choices = model.choose_ids(hidden, following, at + 1, past, tuple(reachable), reserved)
            return -_sum_of_reached(choices, targets, valid)
        reserved, *reachable = reachable
        if past.embedded is None:
            embedded = model.embed(following)
        else:  # the last token is never read, but only padding stands there
            last = past.embedded.shape[1] - 1
            embedded = at_places(past.embedded, (at + 1).clamp(max=last))
        steps = model.id_steps(hidden, embedded, at + 1, past, tuple(reachable), reserved)
        by_level = model.id_log_probabilities(steps, targets)
        return -reduce(torch.add, by_level).masked_fill(~valid, 0).sum(1)


def _sum_of_reached(
    choices: list[IdChoice], targets: Int[Tensor, "b g a"], valid: Bool[Tensor, "b a"]
) -> Float[Tensor, "b"]:
    """Sum log-probabilities over each row.  From wrong IDs the true one may be out of reach: it has no loss then."""
    found = []
    for choice, wanted in zip(choices, targets.unbind(1), strict=True):
        counted = valid & choice.reaches(wanted)
        target = wanted.masked_fill(~counted, RESERVED)
        found.append(choice.log_probability(target).masked_fill(~counted, 0).sum(1))
    return reduce(torch.add, found)


def reachable_ids(
    model: Model, sample: Sample, ids: Int[Tensor, "b g t"], reserved_id: int = RESERVED
) -> tuple[Int[Tensor, "b g"], *tuple[Int[Tensor, "b moves s"], ...]]:
    """Return the reserved ID of each level, then, per level that grows, the IDs to which each token read leads."""
    if model.position_head is None:
        raise ValueError("the model has no position head")
    reserved = torch.full_like(ids[:, :, 0], reserved_id)
    ladders = prompt_ladders(ids, sample.prompt_tokens, reserved)
    return reserved, *model.position_head.reachable(ids[:, :, :-1], ladders, reserved)


def id_choices(
    model: Model,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    hidden: Float[Tensor, "b s w"],
    at: Int[Tensor, "b a"],
    past: Past,
    reserved_id: int = RESERVED,
) -> list[IdChoice]:
    """Return, per level, the model's choice for the token after each of the places `at`, given the true prefix."""
    reserved, *reachable = reachable_ids(model, sample, ids, reserved_id)
    following = sample.tokens[:, 1:].gather(1, at)
    return model.choose_ids(at_places(hidden, at), following, at + 1, past, tuple(reachable), reserved)
