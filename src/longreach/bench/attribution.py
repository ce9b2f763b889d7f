"""How fast, and how faithfully, tokens of an answer are traced back to a context: ours beside ContextCite's.

All sides see the same context, the same answer and the same targets, and are judged by fresh masks of both kinds, ours
and theirs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.bench.attributed import Attribution, Trial, try_all
from longreach.bench.citing import SOURCES, AnswerCitation
from longreach.bench.foretelling import about_sides, fit_masks, lds, on_tokens, shared_out
from longreach.bench.protocols import Protocol
from longreach.bench.spent import Spent, spend
from longreach.errors import BadInput
from longreach.probe import HuggingFace, ProbeConfig
from longreach.probe.masks import draw_masks, masked_log_probabilities
from longreach.probe.progress import silent


def compare_attribution(
    model: HuggingFace,
    contexts: Sequence[str],
    protocol: Protocol,
    tell: Callable[[Trial], None] = lambda trial: None,
) -> Attribution:
    """Every side on every text."""
    notes = (
        about_sides(protocol.keep),
        f"LDS: rank correlation on {protocol.held_out} fresh masks of each kind, median over targets; 0 for "
        "weights that are all 0; targets that a side could not treat are left out for all",
    )
    return Attribution(try_all(contexts, partial(_one_text, model, protocol), tell), notes)


@dataclass(frozen=True)
class _Found:
    side: str
    weights: Float[Tensor, "n t"]
    spent: Spent


def _one_text(model: HuggingFace, protocol: Protocol, number: int, context: str) -> Iterator[Trial]:
    ablations, held_out = protocol.ablations, protocol.held_out
    citations = {
        name: AnswerCitation(model, context, protocol.query, source, protocol.answer, ablations)
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
        weights, spent = spend(model, citation.fit)
        found.append(_Found(f"context-cite, {name}, {ablations}", shared_out(weights, groups[name]), spent))
    fresh = {f"deleted {name}": (name, *citation.deleted(held_out)) for name, citation in citations.items()}
    for name in ("tokens", "sentences"):
        fresh[f"hidden {name}"] = (name, *case.hidden("fresh", held_out, groups[name]))
    treated = torch.stack([one.weights.isfinite().all(1) for one in found]).all(0)
    for one in found:
        scores = {
            kind: tuple(lds(one.weights[treated], on_tokens(kept, groups[name]), true[:, treated]).tolist())
            for kind, (name, kept, true) in fresh.items()
        }
        count, failed = len(case.targets), int((~one.weights.isfinite().all(1)).sum())
        yield Trial(one.side, number, count, failed, one.spent.seconds / count, one.spent.tokens / count, scores)


class _Case:
    """A text with its answer."""

    def __init__(
        self, model: HuggingFace, tokens: Int[Tensor, "t"], targets: Int[Tensor, "n"], masks: ProbeConfig
    ) -> None:
        self.model, self.tokens, self.targets = model, tokens.to(model.device), targets.to(model.device)
        self.masks = masks

    def hidden(
        self, purpose: str, count: int, group: Int[Tensor, "t"]
    ) -> tuple[Bool[Tensor, "m s"], Float[Tensor, "m n"]]:
        """Masks that hide groups of tokens of the context: which groups are kept, and what becomes of the targets."""
        kept = draw_masks(self.masks, f"bench/{purpose}", count, int(group.max()) + 1)
        outcomes = masked_log_probabilities(
            self.model, self.tokens, self.targets, on_tokens(kept, group), self.masks.window, silent
        )
        return kept, outcomes.cpu()

    def ours(self, what: str, budget: int, group: Int[Tensor, "t"]) -> _Found:
        def fit() -> Float[Tensor, "n s"]:
            kept, outcomes = self.hidden("fit", budget, group)
            return fit_masks(kept, outcomes, torch.ones(kept.shape[1], outcomes.shape[1], dtype=torch.bool))

        weights, spent = spend(self.model, fit)
        return _Found(f"longreach, {what}, {budget}", shared_out(weights, group), spent)
