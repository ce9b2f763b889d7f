"""The probe where the truth is known: a task says which tokens an answer needs; how well does the probe find them?

`depends_on` says what the task needs.  A model may use other tokens too, or guess without some of them: only models
that answer well, on answers that are right, tell anything about the probe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.probe.language_model import LanguageModel
from longreach.probe.masks import always_seen
from longreach.probe.measure import probe
from longreach.probe.passage import Passage
from longreach.probe.result import Probed
from longreach.probe.settings import Method, ProbeConfig
from longreach.seeding import stream
from longreach.tasks import Task

_RIGHT = 0.5
"""Nats: answers with a larger loss are left out, for the model does not know them."""


@dataclass(frozen=True)
class Calibration:
    """One method at one budget."""

    method: Method
    masks: int | None
    """None for methods without random masks."""
    answers: int
    """Answer tokens that were probed."""
    precision: float
    """Of the tokens named, the share that the task needs; NaN where none is named."""
    recall: float
    """Of the tokens that the task needs, the share named."""
    ranked: float
    """Of the so many tokens of the largest weights as the task needs, the share that it needs: whatever tau is."""
    k_needed: float
    """Tokens that the task needs, besides those always seen: the mean over answers, and so the following."""
    k_weights: float
    k_sufficient: float
    """Of the answers that have one."""
    k_participation: float
    k_error_weights: float
    """How far k by weights is from what the task needs, whatever the sign: the mean over answers."""
    k_error_sufficient: float
    """The same for the k that suffices, of the answers that have one; only some numbers of tokens are tried."""
    k_error_participation: float
    faithfulness: float
    tokens: float
    """Tokens computed to get the weights of one sample."""


def calibrate(
    model: LanguageModel, task: Task, length: int, samples: int, config: ProbeConfig, budgets: Sequence[int]
) -> list[Calibration]:
    """Every method, and the regression with several numbers of masks, on fresh samples of the task."""
    texts = _texts(model, task, length, samples, config.window, config.seed)
    if not texts:
        raise BadInput(f"{model.name} answers none of {samples} samples of {task.name} at length {length}")
    trials = [replace(config, method="masks", masks=budget) for budget in budgets]
    others: tuple[Method, ...] = ("leave_one_out", "gradient", "elimination")
    trials += [replace(config, method=method) for method in others]
    return [_trial(model, texts, trial) for trial in trials]


@dataclass(frozen=True)
class _Text:
    passage: Passage
    targets: Int[Tensor, "n"]
    needed: Bool[Tensor, "n t"]


def _texts(model: LanguageModel, task: Task, length: int, samples: int, window: int, seed: int) -> list[_Text]:
    """Samples with the answer tokens that the model knows."""
    task.check_length(length)
    draws = stream(seed, "probe/calibrate", torch.arange(samples))
    sample = task.sample(torch.full((samples,), length), draws, length)
    depends = task.depends_on(sample)
    texts = []
    for row in range(samples):
        tokens = sample.tokens[row, : int(sample.num_tokens[row])]
        targets = (sample.answer[row] & ~sample.given[row]).nonzero()[:, 0]
        log_p, _ = model.full_context(tokens.to(model.device), targets.to(model.device))
        targets = targets[(log_p > -_RIGHT).cpu()]
        needed = depends[row, targets, : len(tokens)] & ~always_seen(targets, len(tokens), window)
        targets, needed = targets[needed.any(1)], needed[needed.any(1)]
        if len(targets):
            passage = Passage(task.name, tokens, tuple(task.words(tokens.tolist())))
            texts.append(_Text(passage, targets, needed))
    return texts


def _trial(model: LanguageModel, texts: Sequence[_Text], config: ProbeConfig) -> Calibration:
    found = [probe(model, text.passage, text.targets, config) for text in texts]
    named = [result.clear_weights.abs() > config.tau for result in found]
    needed = [text.needed for text in texts]
    hits = sum(int((one & other).sum()) for one, other in zip(named, needed, strict=True))
    k_needed = torch.cat([one.sum(1) for one in needed]).double()
    weights, sufficient, participation = (
        torch.cat([getattr(result, name) for result in found]).double()
        for name in ("k_weights", "k_sufficient", "k_participation")
    )
    reached = sufficient >= 0
    return Calibration(
        method=config.method,
        masks=config.masks if config.method == "masks" else None,
        answers=sum(len(text.targets) for text in texts),
        precision=_share(hits, sum(int(one.sum()) for one in named)),
        recall=_share(hits, sum(int(one.sum()) for one in needed)),
        ranked=_share(sum(map(_ranked, found, needed)), sum(int(one.sum()) for one in needed)),
        k_needed=k_needed.mean().item(),
        k_weights=weights.mean().item(),
        k_sufficient=sufficient[reached].mean().item(),
        k_participation=participation.mean().item(),
        k_error_weights=(weights - k_needed).abs().mean().item(),
        k_error_sufficient=(sufficient - k_needed).abs()[reached].mean().item(),
        k_error_participation=(participation - k_needed).abs().mean().item(),
        faithfulness=_mean_faithfulness(found),
        tokens=sum(result.cost.tokens for result in found) / len(found),
    )


def _ranked(found: Probed, needed: Bool[Tensor, "n t"]) -> int:
    order = found.weights.abs().argsort(dim=1, descending=True, stable=True)
    first = torch.arange(order.shape[1]) < needed.sum(1, keepdim=True)
    return int((needed.gather(1, order) & first).sum())


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _mean_faithfulness(found: Sequence[Probed]) -> float:
    return torch.cat([result.faithfulness for result in found]).double().nanmean().item()
