"""Objectives: the terms of the training loss, chosen in `train.objectives`, and the batch and the forward pass that
they share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.attention import exact_dtype
from longreach.attention.base import recomputed
from longreach.config import Nonnegative, Settings
from longreach.config.registry import entries, kind, name_of, register
from longreach.errors import BadInput
from longreach.model import Model, Past, at_places
from longreach.seeding import Draws
from longreach.tasks import Sample, Task

_LOGITS = 1 << 28
"""The most logits that are held at once."""
_LOGGED = ("lr", "grad_norm", "samples_per_second")
"""Names that the training loop logs besides the losses."""


NO_LABEL = -100
"""The label of a place that is padding: `Model.cross_entropy` gives it no loss."""

Prepared = tuple[Tensor, ...]
"""The tensors of a loss that depend on the batch alone, with the rows of the batch in front."""


@dataclass(frozen=True)
class Batch:
    """Samples of one task with their position IDs."""

    sample: Sample
    ids: Int[Tensor, "b g t"]
    draws: Draws
    """For random choices of an objective."""
    task: Task

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply a function to every tensor."""
        return replace(self, sample=self.sample.map(change), ids=change(self.ids), draws=Draws(change(self.draws.key)))

    def tensors(self) -> list[Tensor]:
        """Return all tensors in the order in which `map` visits them."""
        return [*self.sample.tensors(), self.ids, self.draws.key]

    def depends_on(self) -> Bool[Tensor, "b t t"]:
        """Return which tokens each answer token depends on."""
        return self.task.depends_on(self.sample)


class Places(NamedTuple):
    """Where tokens must be predicted, and which.  Rows with fewer places than others are padded."""

    at: Int[Tensor, "b a"]
    valid: Bool[Tensor, "b a"]
    labels: Int[Tensor, "b a"]
    """The tokens that follow; `NO_LABEL` at padding."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "Places":
        """Apply a function to every tensor."""
        return Places(*(change(tensor) for tensor in self))


def token_targets(sample: Sample) -> Bool[Tensor, "b s"]:
    """Return where the next token must be predicted."""
    return (sample.answer & ~sample.given)[:, 1:]


def id_targets(sample: Sample, on: Literal["answer", "all"] = "answer") -> Bool[Tensor, "b s"]:
    """Return where the next token's IDs must be predicted: given tokens too, but not the last, which is never read."""
    index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
    read = index < sample.num_tokens[:, None] - 1
    return ((sample.answer if on == "answer" else torch.ones_like(sample.answer)) & read)[:, 1:]


def token_places(sample: Sample, most: int | None = None) -> Places:
    """Return the places of `token_targets`; `most` as in `select`."""
    at, valid = select(token_targets(sample), most)
    return Places(at, valid, sample.tokens[:, 1:].gather(1, at).masked_fill(~valid, NO_LABEL))


def select(wanted: Bool[Tensor, "b t"], most: int | None = None) -> tuple[Int[Tensor, "b a"], Bool[Tensor, "b a"]]:
    """Return the wanted places of each row in order, and which of them are real.

    `a` is the largest number that a row wants, which is read on the host.  With `most`, a bound on that number, `a` is
    the bound: the shape does not depend on the values.
    """
    count = int(wanted.sum(1).max()) if most is None else min(most, wanted.shape[1])
    index = torch.arange(wanted.shape[1], device=wanted.device).expand(wanted.shape)
    so_far = wanted.cumsum(1)
    # the wanted places come first, then the others, each in order: a stable sort in one pass
    place = torch.where(wanted, so_far - 1, so_far[:, -1:] + index - so_far)
    at = torch.empty_like(place).scatter_(1, place, index)[:, :count]
    return at, wanted.gather(1, at)


@dataclass(frozen=True)
class ForwardPass:
    """One forward pass over a batch, which all objectives share."""

    model: Model
    batch: Batch
    ids: Int[Tensor, "b g t"]
    """The IDs that the model read: the batch's, unless an objective feeds others."""
    places: Places
    """The places of the answer tokens that must be predicted."""
    states: Float[Tensor, "b a w"]
    """The final states at these places."""
    hidden: Float[Tensor, "b s w"] | None
    """The final states of all tokens, where a head of the model looks back at them."""
    past: Past | None
    """The memory of the heads that look back."""
    most: int | None
    """The bound on answer tokens that `select` takes; None counts them."""
    prepared: Mapping[type, Prepared] = field(default_factory=dict)
    """The result of `Objective.prepare` for each class of objectives, if it was computed with the batch."""

    @classmethod
    def run(
        cls,
        model: Model,
        batch: Batch,
        ids: Int[Tensor, "b g t"],
        places: Places | None = None,
        most: int | None = None,
        prepared: Mapping[type, Prepared] | None = None,
    ) -> "ForwardPass":
        """Compute the states; `places` are those of `token_places`, where the caller has them already."""
        prepared = prepared or {}
        places = token_places(batch.sample, most) if places is None else places
        read, read_ids = batch.sample.tokens[:, :-1], ids[:, :, :-1]
        if not model.looks_back:
            return cls(model, batch, ids, places, model(read, read_ids, at=places.at), None, None, most, prepared)
        hidden = model(read, read_ids)
        past = model.past(hidden, read)
        return cls(model, batch, ids, places, at_places(hidden, places.at), hidden, past, most, prepared)

    def sum_over_logits(
        self,
        compute: Callable[[Float[Tensor, "b a v"], Int[Tensor, "b a"]], Float[Tensor, "b a"]],
        exact: bool = True,
    ) -> Float[Tensor, "b"]:
        """Return the sum of `compute(logits, labels)` over the places of each row.

        The function must return 0 where the label is negative, which is padding.  If there are too many logits to hold,
        it gets a part of the places at a time, and the backward pass computes each part again.  Logits are in fp32, or
        as the model computes them if `exact` is false.
        """
        at, _, labels = self.places
        size = max(1, _LOGITS // (len(at) * self.model.embed.weight.shape[-2]))
        if size >= at.shape[1]:
            return compute(self._all_exact_logits if exact else self._all_logits, labels).sum(1)

        def sum_of(part: slice) -> Float[Tensor, "b"]:
            logits = self._logits(part)
            return compute(_in_fp32(logits) if exact else logits, labels[:, part]).sum(1)

        total = torch.zeros(len(at), device=at.device)
        for start in range(0, at.shape[1], size):
            total = total + recomputed(sum_of, slice(start, start + size))
        return total

    @cached_property
    def _all_logits(self) -> Float[Tensor, "b a v"]:
        return self._logits(slice(None))

    @cached_property
    def _all_exact_logits(self) -> Float[Tensor, "b a v"]:
        return _in_fp32(self._all_logits)

    def _logits(self, part: slice) -> Float[Tensor, "b _ v"]:
        return self.model.logits(self.states[:, part], self.places.at[:, part] + 1, self.past)


def _in_fp32(logits: Float[Tensor, "b a v"]) -> Float[Tensor, "b a v"]:
    """Return logits in the precision of losses; float64 stays as it is."""
    return logits.to(exact_dtype(logits))


@kind("objective")
@dataclass(frozen=True, kw_only=True)
class Objective(Settings):
    """Base of all objectives.  A subclass must give `losses`."""

    weight: Nonnegative = 1.0
    """Factor of this term in the training loss."""

    logged_as: ClassVar[str] = ""
    """The name of the mean loss among the metrics; the class's own name if empty."""

    @property
    def metric(self) -> str:
        return self.logged_as or type(self).__name__

    @classmethod
    def is_default(cls, model: Model) -> bool:
        """Return whether a model trains with this objective though no recipe lists it."""
        return False

    def check(self, model: Model, batch: Batch) -> None:
        """Raise BadInput if the objective cannot be used with this model and training batches like this one."""

    def feed(self, model: Model, batch: Batch, progress: "float | Float[Tensor, '']") -> Int[Tensor, "b g t"]:
        """Return the IDs that the forward pass reads; `progress` is the share of training that is done."""
        return batch.ids

    def counts(self, batch: Batch) -> Int[Tensor, "b"]:
        """Return how many terms the loss of each row sums; the loss of a batch is divided by their sum."""
        return token_targets(batch.sample).sum(1)

    def prepare(self, model: Model, batch: Batch, most: int | None) -> Prepared:
        """Return tensors of the loss that depend on the batch alone; the training step computes them with the batch.

        Each has the rows of the batch in front.  The weights of the model must not be read.  `most` as in `select`.
        `losses` finds the result in `forward.prepared`, unless the forward pass was run without it.
        """
        return ()

    def losses(self, model: Model, forward: ForwardPass) -> Float[Tensor, "b"]:
        """Return the sum over each row."""
        raise BadInput(f"objective {name_of(type(self))} does not say how to compute its losses")


@register("objective", "tokens")
@dataclass(frozen=True, kw_only=True)
class TokenLoss(Objective):
    """Cross-entropy on answer tokens.  Given tokens and padding have no loss.  Every model trains with it."""

    logged_as = "loss"

    @classmethod
    def is_default(cls, model: Model) -> bool:
        return True

    def losses(self, model: Model, forward: ForwardPass) -> Float[Tensor, "b"]:
        return forward.sum_over_logits(model.cross_entropy, exact=False)


class Term(NamedTuple):
    weight: float
    losses: Float[Tensor, "b"]
    """Sums over rows, not yet divided by the counts."""


def run_forward(
    objectives: Sequence[Objective],
    model: Model,
    batch: Batch,
    places: Places | None = None,
    progress: "float | Float[Tensor, '']" = 0.0,
    most: int | None = None,
    prepared: Sequence[Prepared] | None = None,
) -> ForwardPass:
    """Run the forward pass that all objectives share, on the IDs that they feed.

    `progress` is the share of training that is done; `places` and `most` as in `ForwardPass.run`.  `prepared` has the
    result of `Objective.prepare` for each objective.
    """
    ids = batch.ids
    for objective in objectives:
        ids = objective.feed(model, replace(batch, ids=ids), progress)
    by_class = {} if prepared is None else dict(zip(map(type, objectives), prepared, strict=True))
    return ForwardPass.run(model, batch, ids, places, most, by_class)


def terms(
    objectives: Sequence[Objective],
    model: Model,
    batch: Batch,
    places: Places | None = None,
    progress: "float | Float[Tensor, '']" = 0.0,
    most: int | None = None,
) -> dict[str, Term]:
    """Return the term of each objective by its name, from one forward pass; arguments as in `run_forward`."""
    forward = run_forward(objectives, model, batch, places, progress, most)
    return {name_of(type(one)): Term(one.weight, one.losses(model, forward)) for one in objectives}


def resolve_objectives(listed: Sequence[Objective], model: Model) -> tuple[Objective, ...]:
    """Return the objectives of a run: those that a recipe lists, and the default ones of its model.

    The default ones come first, and `TokenLoss` before all others.
    """
    metrics = set(_LOGGED)
    for objective in listed:
        if objective.metric in metrics:
            name = name_of(type(objective))
            raise BadInput(f"train.objectives: {name} is listed twice, or another value is called {objective.metric}")
        metrics.add(objective.metric)
    registered = {cls: cls() for cls in entries("objective").values() if cls.is_default(model)}  # type: ignore[attr-defined]
    chosen: dict[type, Objective] = {**registered, **{type(objective): objective for objective in listed}}
    return tuple(chosen.values())
