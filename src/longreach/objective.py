"""What training minimises: cross-entropy on the answer tokens that must be predicted; with a position head also on the
position IDs of all answer tokens, with a dependency head on the tokens that an answer token depends on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention import exact_dtype
from longreach.attention.recomputation import recomputed
from longreach.config import Settings
from longreach.model import RESERVED, IdChoice, Model, Past, at_places, prompt_ladders
from longreach.seeding import Draws
from longreach.tasks import Sample


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(Settings):
    """What is added to the loss on tokens, which has weight 1."""

    id_weight: float = 1.0
    """Weight of the loss on predicted IDs."""
    id_loss_on: Literal["answer", "all"] = "answer"
    """Whether the IDs of prompt tokens are predicted too, as an exercise: generation is given them."""
    feed_predicted: float = 0.0
    """Probability, at the end of training, that an answer token is fed with the ID the model predicts for it instead
    of the true one.  Takes a second pass per step."""
    feed_from: float = 0.5
    """Share of training after which that probability rises from 0, on a line."""
    dependency_weight: float = 1.0
    """Weight of the loss of a dependency head."""

    def __post_init__(self) -> None:
        for name in ("id_weight", "dependency_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"objective.{name} must not be negative, got {getattr(self, name)}")
        if not self.feed_predicted and self.feed_from != type(self).feed_from:
            raise ValueError(f"objective.feed_from={self.feed_from} needs feed_predicted")
        for name in ("feed_predicted", "feed_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"objective.{name} must be in 0..1, got {getattr(self, name)}")

    def feeding(self, progress: "float | Tensor") -> "float | Tensor":
        """The probability of feeding predicted IDs when this share of training is done."""
        rising = (progress - self.feed_from) / max(1 - self.feed_from, 1e-9)
        clamped = rising.clamp(0, 1) if isinstance(rising, Tensor) else min(max(rising, 0.0), 1.0)
        return self.feed_predicted * clamped


@dataclass(frozen=True)
class Losses:
    """Sums over the answer of each sample; what they are divided by is the caller's business, who may have more."""

    token: Float[Tensor, "b"]
    position: Float[Tensor, "b"]
    dependency: Float[Tensor, "b"]


def token_targets(sample: Sample) -> Bool[Tensor, "b s"]:
    """Where the next token must be predicted."""
    return (sample.answer & ~sample.given)[:, 1:]


class Places(NamedTuple):
    """Where tokens must be predicted, and which.  Rows may want different numbers: those that are not real have no
    label."""

    at: Int[Tensor, "b a"]
    valid: Bool[Tensor, "b a"]
    labels: Int[Tensor, "b a"]

    def map(self, change: Callable[[Tensor], Tensor]) -> "Places":
        """Apply a function to every tensor."""
        return Places(*(change(tensor) for tensor in self))


def token_places(sample: Sample, most: int | None = None) -> Places:
    """`most` bounds the answer tokens of a row."""
    at, valid = select(token_targets(sample), most)
    return Places(at, valid, sample.tokens[:, 1:].gather(1, at).masked_fill(~valid, -100))


def id_targets(sample: Sample, on: Literal["answer", "all"] = "answer") -> Bool[Tensor, "b s"]:
    """Where the next token's IDs must be predicted: given tokens too, but not the last, which is never read."""
    index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
    read = index < sample.num_tokens[:, None] - 1
    return ((sample.answer if on == "answer" else torch.ones_like(sample.answer)) & read)[:, 1:]


def answer_loss(
    model: Model,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    config: ObjectiveConfig | None = None,
    draws: Draws | None = None,
    progress: "float | Tensor" = 0.0,
    most: int | None = None,
    depends_on: Bool[Tensor, "b t t"] | None = None,
    places: Places | None = None,
) -> Losses:
    """All losses.  Padding and given tokens carry no token loss.  `most` bounds the answer tokens of a row; where the
    `places` of tokens are known already, they are not looked for again.  A dependency head needs the task's
    `depends_on`."""
    config = config or ObjectiveConfig()
    fed = ids
    if config.feed_predicted and model.position_head is not None:
        if draws is None:
            raise ValueError("feeding predicted IDs needs draws")
        fed = _mix_predicted(model, sample, ids, config.feeding(progress), draws)
    places = token_places(sample, most) if places is None else places
    at, valid, _ = places
    read = sample.tokens[:, :-1]
    if not model.looks_back:
        states = model(read, fed[:, :, :-1], at=at)
        zero = torch.zeros(len(read), device=read.device)
        return Losses(_token_loss(model, states, None, places), zero, zero)
    hidden = model(read, fed[:, :, :-1])
    past = model.past(hidden, read)
    states = at_places(hidden, at)
    token = _token_loss(model, states, past, places)
    position = dependency = torch.zeros_like(token)
    if model.dependency_head is not None:
        if depends_on is None:
            raise ValueError("a dependency head needs the task's depends_on")
        memory = model.dependency_head.remember(hidden, model.embed(past.tokens))
        weights = model.dependency_head(states, at + 1, memory)
        needed = depends_on[:, 1:, :-1].gather(1, at[..., None].expand_as(weights)) & valid[..., None]
        share = needed / needed.sum(-1, keepdim=True).clamp(min=1)
        dependency = -(share * weights.masked_fill(~needed, 0)).sum((1, 2))
    if model.position_head is None:
        return Losses(token, position, dependency)
    at, valid = select(id_targets(sample, config.id_loss_on), most if config.id_loss_on == "answer" else None)
    for level, choice in enumerate(id_choices(model, sample, fed, hidden, at, past)):
        target, counts = ids[:, level, 1:].gather(1, at), valid
        if config.feed_predicted:  # from wrong IDs the true one may be out of reach: nothing is to be learned there
            counts = counts & choice.reaches(target)
        target = target.masked_fill(~counts, RESERVED)  # an ID that can always be reached
        position = position - choice.log_probability(target).masked_fill(~counts, 0).sum(1)
    return Losses(token, position, dependency)


_LOGITS = 1 << 28
"""Scores of tokens that are held at once."""


def _token_loss(
    model: Model,
    states: Float[Tensor, "b a w"],
    past: Past | None,
    places: Places,
) -> Float[Tensor, "b"]:
    """Of the tokens that follow the places, whose states are given.

    Where there are too many scores, a part of the places at a time, and the backward pass computes each part again.
    """
    at, _, labels = places

    def loss(part: slice) -> Float[Tensor, "b"]:
        logits = model.logits(states[:, part], at[:, part] + 1, past)
        logits = logits.to(exact_dtype(logits))
        wanted = labels[:, part]
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none")
        return each.view(wanted.shape).sum(1)

    size = max(1, _LOGITS // (len(at) * model.embed.weight.shape[-2]))
    if size >= at.shape[1]:
        return loss(slice(None))
    total = torch.zeros(len(at), device=at.device)
    for start in range(0, at.shape[1], size):
        total = total + recomputed(loss, slice(start, start + size))
    return total


def id_choices(
    model: Model,
    sample: Sample,
    ids: Int[Tensor, "b g t"],
    hidden: Float[Tensor, "b s w"],
    at: Int[Tensor, "b a"],
    past: Past,
    reserved_id: int = RESERVED,
) -> list[IdChoice]:
    """Per level, the model's choice for the token after each of the places `at`, the true prefix being given."""
    if model.position_head is None:
        raise ValueError("the model has no position head")
    read = ids[:, :, :-1]
    reserved = torch.full_like(ids[:, :, 0], reserved_id)
    reachable = model.position_head.reachable(read, prompt_ladders(ids, sample.prompt_tokens, reserved), reserved)
    following = sample.tokens[:, 1:].gather(1, at)
    return model.choose_ids(at_places(hidden, at), following, at + 1, past, reachable, reserved)


def _mix_predicted(
    model: Model, sample: Sample, ids: Int[Tensor, "b g t"], share: "float | Tensor", draws: Draws
) -> Int[Tensor, "b g t"]:
    """The IDs with a share of the answer's replaced by what the model predicts for them, given the true ones."""
    with torch.no_grad():
        hidden = model(sample.tokens[:, :-1], ids[:, :, :-1])
        everywhere = torch.arange(hidden.shape[1], device=ids.device).expand(hidden.shape[:2])
        past = model.past(hidden, sample.tokens[:, :-1])
        choices = id_choices(model, sample, ids, hidden, everywhere, past)
        best = torch.stack([choice.best() for choice in choices], dim=1)
    replaced = id_targets(sample) & (draws.uniform("feed", hidden.shape[1]) < share)
    return torch.cat([ids[:, :, :1], torch.where(replaced[:, None], best, ids[:, :, 1:])], dim=2)


def select(wanted: Bool[Tensor, "b t"], most: int | None = None) -> tuple[Int[Tensor, "b a"], Bool[Tensor, "b a"]]:
    """The wanted places of each row, in order, and which of them are real: rows may want different numbers.

    On a GPU `most` places are taken, or all, so that shapes are fixed and nothing waits; on a CPU as many as needed.
    """
    count = min(most or wanted.shape[1], wanted.shape[1]) if wanted.is_cuda else int(wanted.sum(1).max())
    index = torch.arange(wanted.shape[1], device=wanted.device).expand(wanted.shape)
    so_far = wanted.cumsum(1)
    # the wanted ones come first, then the others, each in order: a stable sort in a pass
    place = torch.where(wanted, so_far - 1, so_far[:, -1:] + index - so_far)
    at = torch.empty_like(place).scatter_(1, place, index)[:, :count]
    return at, wanted.gather(1, at)
