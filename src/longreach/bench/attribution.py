"""How fast, and how faithfully, tokens of an answer are traced back to a context: ours beside ContextCite's.

All sides see the same context, the same answer and the same targets.  What each finds is written as a weight for every
token of the context (the weight of a sentence is shared out evenly among its tokens), and judged by how well the
weights of the kept tokens, summed, foretell what fresh masks do: masks of both kinds, ours and theirs.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.bench.citing import SOURCES, Citation
from longreach.bench.machine import wait_for
from longreach.errors import BadInput
from longreach.probe import HuggingFace, ProbeConfig
from longreach.probe.faithfulness import faithfulness
from longreach.probe.masks import draw_masks, masked_log_probabilities
from longreach.probe.progress import silent
from longreach.probe.regression import choose_by_held_out

KINDS = ("deleted sentences", "deleted words", "hidden tokens", "hidden sentences")
"""Fresh masks: the first two are ContextCite's, the others hide keys and leave positions as they are."""
_CHOOSING = 4
"""One in so many of our masks chooses the penalty; it counts as spent."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What every side is asked, and how much each may spend."""

    query: str = "What is this text about?"
    """Asked of every text."""
    answer: int = 16
    """Tokens of the answer, each of them a target."""
    masks: tuple[int, ...] = (64, 256)
    """How many ours may spend when it hides tokens; each number is a side."""
    ablations: int = 64
    """ContextCite's; ours spends as many when it hides sentences."""
    held_out: int = 32
    """Fresh masks of each kind."""
    keep: float = 0.5
    """The probability with which ours keeps a token or a sentence: ContextCite's own, so that sides hide as much."""

    def __post_init__(self) -> None:
        for name, least in (("answer", 1), ("ablations", 8), ("held_out", 4)):
            if getattr(self, name) < least:
                raise BadInput(f"{name.replace('_', '-')} must be at least {least}, got {getattr(self, name)}")
        if not self.masks or min(self.masks) < 8:
            raise BadInput(f"masks must be at least 8, got {','.join(map(str, self.masks))}")
        if not 0 < self.keep < 1:
            raise BadInput(f"keep must be between 0 and 1, got {self.keep:g}")


@dataclass(frozen=True)
class Trial:
    """One side on one text."""

    side: str
    text: int
    targets: int
    failed: int
    """Targets for which it found nothing because its solver refused."""
    seconds: float
    """For each target; the generation of the answer is not counted."""
    tokens: float
    """Put through the model, for each target."""
    lds: dict[str, float]
    """By kind of fresh mask: the median over the targets that every side could treat."""


@dataclass(frozen=True)
class SideRow:
    """One side over all texts: medians, with the smallest and the largest."""

    side: str
    seconds: tuple[float, float, float]
    tokens: tuple[float, float, float]
    ratio: tuple[float, float, float]
    """How many times the seconds of the first side it took, text by text."""
    failed: int
    targets: int
    lds: dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Attribution:
    """The whole comparison."""

    trials: tuple[Trial, ...]
    notes: tuple[str, ...]

    @property
    def rows(self) -> list[SideRow]:
        sides = list(dict.fromkeys(trial.side for trial in self.trials))
        first = {trial.text: trial.seconds for trial in self.trials if trial.side == sides[0]}
        found = []
        for side in sides:
            own = [trial for trial in self.trials if trial.side == side]
            found.append(
                SideRow(
                    side=side,
                    seconds=_spread([trial.seconds for trial in own]),
                    tokens=_spread([trial.tokens for trial in own]),
                    ratio=_spread([trial.seconds / first[trial.text] for trial in own]),
                    failed=sum(trial.failed for trial in own),
                    targets=sum(trial.targets for trial in own),
                    lds={kind: _spread([trial.lds[kind] for trial in own]) for kind in KINDS},
                )
            )
        return found

    def to_json(self) -> dict[str, object]:
        return {
            "notes": list(self.notes),
            "rows": [asdict(row) for row in self.rows],
            "trials": [asdict(trial) for trial in self.trials],
        }


def compare_attribution(
    model: HuggingFace,
    contexts: Sequence[str],
    protocol: Protocol,
    tell: Callable[[Trial], None] = lambda trial: None,
) -> Attribution:
    """Every side on every text, in turns."""
    trials: list[Trial] = []
    for number, context in enumerate(contexts):
        for trial in _one_text(model, number, context, protocol):
            trials.append(trial)
            tell(trial)
    return Attribution(
        tuple(trials),
        (
            "side: what is hidden or deleted, and how many masks; ours hide keys and leave positions as they are, keep "
            f"{protocol.keep:g}, and 1 in {_CHOOSING} of our masks chooses the penalty; ContextCite has its defaults",
            f"LDS: rank correlation on {protocol.held_out} fresh masks of each kind, median over targets; 0 for "
            "weights that are all 0; targets that a side could not treat are left out for all",
        ),
    )


@dataclass(frozen=True)
class _Found:
    side: str
    weights: Float[Tensor, "n t"]
    seconds: float
    tokens: int


def _one_text(model: HuggingFace, number: int, context: str, protocol: Protocol) -> Iterator[Trial]:
    ablations, held_out = protocol.ablations, protocol.held_out
    citations = {
        name: Citation(model, context, protocol.query, source, protocol.answer, ablations)
        for name, source in SOURCES.items()
    }
    case = _Case(model, citations["sentences"].tokens, citations["sentences"].targets, ProbeConfig(keep=protocol.keep))
    if not torch.equal(case.tokens, citations["words"].tokens.to(model.device)):
        raise BadInput(f"text {number + 1} is not the same when ContextCite puts it together from sentences and words")
    groups = {name: citation.group_of_token() for name, citation in citations.items()}
    within = groups["sentences"] >= 0
    groups["tokens"] = torch.where(within, within.cumsum(0) - 1, -1)
    found = [case.ours("tokens", budget, groups["tokens"]) for budget in protocol.masks]
    found.append(case.ours("sentences", ablations, groups["sentences"]))
    for name, citation in citations.items():
        weights, seconds, tokens = case.timed(citation.fit)
        found.append(_Found(f"context-cite, {name}, {ablations}", _shared_out(weights, groups[name]), seconds, tokens))
    fresh = {f"deleted {name}": (name, *citation.deleted(held_out)) for name, citation in citations.items()}
    for name in ("tokens", "sentences"):
        fresh[f"hidden {name}"] = (name, *case.hidden("fresh", held_out, groups[name]))
    treated = torch.stack([one.weights.isfinite().all(1) for one in found]).all(0)
    for one in found:
        lds = {
            kind: _median_lds(one.weights[treated], _on_tokens(kept, groups[name]), true[:, treated])
            for kind, (name, kept, true) in fresh.items()
        }
        count, failed = len(case.targets), int((~one.weights.isfinite().all(1)).sum())
        yield Trial(one.side, number, count, failed, one.seconds / count, one.tokens / count, lds)


class _Case:
    """A text with its answer, and what is spent on it."""

    def __init__(
        self, model: HuggingFace, tokens: Int[Tensor, "t"], targets: Int[Tensor, "n"], masks: ProbeConfig
    ) -> None:
        self.model, self.tokens, self.targets = model, tokens.to(model.device), targets.to(model.device)
        self.masks = masks

    def timed(self, work: Callable[[], Any]) -> tuple[Any, float, int]:
        """What it gives, the seconds it took, and the tokens that it put through the model."""
        read = 0

        def count(module: object, args: tuple[Any, ...], options: dict[str, Any]) -> None:
            nonlocal read
            read += options["input_ids"].numel()

        hook = self.model.model.register_forward_pre_hook(count, with_kwargs=True)
        try:
            wait_for(str(self.model.device))
            start = time.perf_counter()
            given = work()
            wait_for(str(self.model.device))
            return given, time.perf_counter() - start, read
        finally:
            hook.remove()

    def hidden(
        self, purpose: str, count: int, group: Int[Tensor, "t"]
    ) -> tuple[Bool[Tensor, "m s"], Float[Tensor, "m n"]]:
        """Masks that hide groups of tokens of the context: which groups are kept, and what becomes of the targets."""
        kept = draw_masks(self.masks, f"bench/{purpose}", count, int(group.max()) + 1)
        outcomes = masked_log_probabilities(
            self.model, self.tokens, self.targets, _on_tokens(kept, group), self.masks.window, silent
        )
        return kept, outcomes.cpu()

    def ours(self, what: str, budget: int, group: Int[Tensor, "t"]) -> _Found:
        def fit() -> Float[Tensor, "n s"]:
            kept, outcomes = self.hidden("fit", budget, group)
            some = budget - budget // _CHOOSING
            allowed = torch.ones(kept.shape[1], outcomes.shape[1], dtype=torch.bool)
            return choose_by_held_out(kept[:some], outcomes[:some], kept[some:], outcomes[some:], allowed).T

        weights, seconds, tokens = self.timed(fit)
        return _Found(f"longreach, {what}, {budget}", _shared_out(weights, group), seconds, tokens)


def _on_tokens(kept: Bool[Tensor, "m s"], group: Int[Tensor, "t"]) -> Bool[Tensor, "m t"]:
    """Which tokens are kept; those in no group always are."""
    return kept[:, group.clamp(min=0)] | (group < 0)


def _shared_out(weights: Float[Tensor, "n s"], group: Int[Tensor, "t"]) -> Float[Tensor, "n t"]:
    """Each group's weight, in equal parts on its tokens."""
    sizes = torch.bincount(group[group >= 0], minlength=weights.shape[1]).clamp(min=1)
    return (weights / sizes)[:, group.clamp(min=0)] * (group >= 0)


def _median_lds(weights: Float[Tensor, "n t"], kept: Bool[Tensor, "m t"], true: Float[Tensor, "m n"]) -> float:
    """Weights that tell no mask from another are no prediction: they count as 0."""
    return float(faithfulness(weights, kept, true).nan_to_num(0.0).median())


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)
