"""How fast, and how faithfully, the tokens of a text are traced back to those before them: ours beside ContextCite's.

Each token of a text is a target, and the text before it its context.  A masked pass of ours serves all of them;
ContextCite ablates the context of each target anew.  Its cost is therefore taken from some targets, spread over the
text, and every side is judged on these.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.bench.attributed import Attribution, Trial, try_all
from longreach.bench.citing import SOURCES
from longreach.bench.citing_text import TokenCitation, WholeText
from longreach.bench.foretelling import about_sides, fit_masks, lds, on_tokens, shared_out
from longreach.bench.protocols import EveryTarget
from longreach.bench.spent import Spent, spend
from longreach.errors import BadInput
from longreach.probe import HuggingFace, ProbeConfig
from longreach.probe.masks import draw_masks, masked_log_probabilities
from longreach.probe.progress import silent


def compare_every_target(
    model: HuggingFace,
    texts: Sequence[str],
    protocol: EveryTarget,
    tell: Callable[[Trial], None] = lambda trial: None,
) -> Attribution:
    """Every side on every text."""
    notes = (
        about_sides(protocol.keep),
        f"cost: of ours for all targets of a text, of ContextCite for {protocol.sample} of them, spread over the "
        "text; both divided by the number of targets",
        f"LDS: rank correlation on {protocol.held_out} fresh masks of each kind, median over the targets that "
        "ContextCite was asked about; 0 for weights that are all 0; targets that a side could not treat are left "
        "out for all",
    )
    return Attribution(try_all(texts, partial(_one_text, model, protocol), tell), notes)


@dataclass(frozen=True)
class _Found:
    side: str
    weights: Float[Tensor, "n t"]
    """For the targets that all sides are judged on."""
    targets: int
    """Those that the cost was for."""
    spent: Spent


def _one_text(model: HuggingFace, protocol: EveryTarget, number: int, text: str) -> Iterator[Trial]:
    whole, masks = WholeText(model, text), ProbeConfig(keep=protocol.keep)
    targets = whole.targets(protocol.every)
    judged = _spread_over(targets, [whole.can_be_cut(int(target)) for target in targets], protocol.sample)
    found = list(_ours(whole, masks, targets, judged, protocol.masks))
    fresh: dict[str, list[tuple[Bool[Tensor, "m t"], Float[Tensor, "m 1"]]]] = {}
    kept = _draw(whole, masks, "fresh", protocol.held_out)
    fresh["hidden tokens"] = [(kept, true[:, None]) for true in _outcomes(whole, targets[judged], kept, masks).T]
    for name in protocol.sources:
        citations = [
            TokenCitation(whole, target, SOURCES[name], protocol.ablations) for target in targets[judged].tolist()
        ]
        groups = [citation.group_of_token() for citation in citations]
        fits = [spend(model, citation.fit) for citation in citations]
        weights = [shared_out(weights, group) for (weights, _), group in zip(fits, groups, strict=True)]
        spent = sum((cost for _, cost in fits), Spent())
        found.append(_Found(f"context-cite, {name}, {protocol.ablations}", torch.cat(weights), len(judged), spent))
        fresh[f"deleted {name}"] = [
            (on_tokens(kept, group), true)
            for (kept, true), group in zip((each.deleted(protocol.held_out) for each in citations), groups, strict=True)
        ]
    treated = torch.stack([one.weights.isfinite().all(1) for one in found]).all(0).nonzero()[:, 0].tolist()
    if not treated:
        raise BadInput(f"text {number + 1}: ContextCite could treat none of {len(judged)} targets")
    for one in found:
        scores = {
            kind: tuple(float(lds(one.weights[row, None], *outcomes[row])) for row in treated)
            for kind, outcomes in fresh.items()
        }
        failed, count = int((~one.weights.isfinite().all(1)).sum()), one.targets
        yield Trial(one.side, number, count, failed, one.spent.seconds / count, one.spent.tokens / count, scores)


def _ours(
    whole: WholeText,
    masks: ProbeConfig,
    targets: Int[Tensor, "n"],
    judged: Int[Tensor, "j"],
    budgets: Sequence[int],
) -> Iterator[_Found]:
    """With each number of masks; the first masks of a larger number are those of the smaller one, and are run once."""
    kept, allowed = _draw(whole, masks, "fit", max(budgets)), whole.free(targets)
    outcomes, passes = torch.zeros(0, len(targets)), Spent()
    for budget in sorted(set(budgets)):
        more = kept[len(outcomes) : budget]
        told, spent = spend(whole.model, partial(_outcomes, whole, targets, more, masks))
        outcomes, passes = torch.cat([outcomes, told]), passes + spent
        weights, fitting = spend(whole.model, partial(fit_masks, kept[:budget], outcomes, allowed))
        yield _Found(f"longreach, tokens, {budget}", weights[judged], len(targets), passes + fitting)


def _draw(whole: WholeText, masks: ProbeConfig, purpose: str, count: int) -> Bool[Tensor, "m t"]:
    """The first word is never hidden, for ContextCite does not delete it."""
    kept = draw_masks(masks, f"bench/{purpose}", count, len(whole.tokens))
    kept[:, : whole.first_free] = True
    return kept


def _outcomes(
    whole: WholeText, targets: Int[Tensor, "n"], kept: Bool[Tensor, "m t"], masks: ProbeConfig
) -> Float[Tensor, "m n"]:
    device = whole.model.device
    tokens, targets = whole.tokens.to(device), targets.to(device)
    return masked_log_probabilities(whole.model, tokens, targets, kept, masks.window, silent).cpu()


def _spread_over(targets: Int[Tensor, "n"], able: list[bool], count: int) -> Int[Tensor, "j"]:
    """The numbers of at most so many targets that are able, evenly spread."""
    numbers = torch.tensor(able).nonzero()[:, 0]
    if not len(numbers):
        raise BadInput(f"none of {len(targets)} targets can be put to ContextCite")
    count = min(count, len(numbers))
    return numbers[((torch.arange(count) + 0.5) * len(numbers) / count).long()]
