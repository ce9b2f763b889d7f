"""Measure a language model by the size of its context: loss, gain of the last doubling, and retrieval."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.config import Bounds, Lengths, Positive, Seed, Settings, build
from longreach.errors import BadInput, RunFailed, argument
from longreach.evaluation import (
    ContextLoss,
    EvalConfig,
    HoldsTo,
    Loss,
    Predict,
    check_text_memory,
    estimate_text,
    estimate_windows,
    evaluate_text,
    losses_from_json,
    losses_to_json,
    over_documents,
    text_work,
)
from longreach.evaluation.context import BLOCK
from longreach.execution import ExecutionConfig
from longreach.extension.likelihood import PlainScorer, scorer
from longreach.extension.retrieval import NAMES, NeedleTexts, RetrievalScore, measure_retrieval
from longreach.extension.texts import ReachTexts, passages
from longreach.probe import HuggingFace, LanguageModel, ProbeConfig, predicting, probe, total_steps
from longreach.probe.summary import overview
from longreach.runs import Observer
from longreach.system.capacity import check_memory

PASSAGE = 256
"""Tokens of a passage that is probed."""
_EVERY = 8
"""One of so many tokens of a passage is predicted by the probe."""


@dataclass(frozen=True, kw_only=True)
class ReachConfig(Settings):
    """Settings of a measurement: contexts, tokens and questions."""

    contexts: Lengths
    """Sizes of context in tokens."""
    samples: Positive = 1024
    """About how many tokens are predicted from each context."""
    retrieval: bool = True
    """Also hide needles in the texts and ask for them."""
    needles: tuple[Annotated[int, Bounds(1, len(NAMES))], ...] = (1, 4)
    """Numbers of needles in a text."""
    depths: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Shares of the text in front of the asked needle."""
    questions: Positive = 4
    """Questions at each depth."""
    batch_tokens: Positive = ExecutionConfig.batch_tokens
    """Tokens in a forward pass."""
    seed: Seed = 0
    """Another seed, other tokens and questions."""

    def __post_init__(self) -> None:
        for name in ("needles", "depths"):
            numbers = getattr(self, name)
            if not numbers or len(set(numbers)) < len(numbers):
                raise BadInput(
                    f"{argument(name)} must be different numbers, got {', '.join(map(str, numbers)) or 'none'}"
                )
        for depth in self.depths:
            if not 0 <= depth <= 1:
                raise BadInput(f"{argument('depths')} must be from 0 to 1, got {depth:g}")

    @property
    def test(self) -> EvalConfig:
        """Return the settings of the test on text."""
        asked = {"lengths": self.contexts, "samples": self.samples, "seed": self.seed, "free_samples": 0}
        return build(EvalConfig, asked, "evaluate")


@dataclass(frozen=True)
class LossGain:
    """Loss at half of a context minus loss at the context, on the same tokens (95% over documents, bootstrap)."""

    context: int
    nats: float
    low: float | None
    """None where there is one document only, and so no interval."""
    high: float | None


@dataclass(frozen=True)
class MeasuredReach:
    """Figures of one model by context."""

    losses: list[Loss]
    """Losses by context, and by position in windows of the largest context."""
    gains: list[LossGain]
    """For contexts whose half was measured too."""
    holds_to: HoldsTo
    retrieval: list[RetrievalScore]
    """Empty without retrieval."""
    by_context: ContextLoss | None = field(default=None, compare=False, repr=False)
    """Loss of each token, for comparisons with other models; the plain form leaves it out."""

    def to_plain(self) -> dict[str, Any]:
        rows = [
            {**asdict(score), **dict(zip(("low", "high"), score.interval(), strict=True))} for score in self.retrieval
        ]
        return {
            "losses": losses_to_json(self.losses),
            "gains": [asdict(gain) for gain in self.gains],
            "holds_to": asdict(self.holds_to),
            "retrieval": rows,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> "MeasuredReach":
        """Return what `to_plain` wrote; raise an error of any kind for other content."""
        counts = ("context", "needles", "depth", "right", "questions")
        return cls(
            losses_from_json(plain["losses"]),
            [build(LossGain, row, "gain") for row in plain["gains"]],
            build(HoldsTo, plain["holds_to"], "holds_to"),
            [build(RetrievalScore, {name: row[name] for name in counts}, "retrieval") for row in plain["retrieval"]],
        )


def measure_model(
    model: HuggingFace,
    texts: ReachTexts,
    config: ReachConfig,
    observer: Observer | None = None,
    name: str = "",
    variant: LanguageModel | None = None,
) -> MeasuredReach:
    """Return losses, gains and retrieval of a model by context.

    `variant` is measured in the place of `model`, with its tokens: such as the same weights with another encoding.
    `name` is part of the titles of progress bars.
    """
    observer, computed = observer or Observer(), variant or model
    contexts, title = list(config.contexts), f"{name}: " if name else ""
    model.check_positions(contexts[-1] + BLOCK)
    split = texts.cut(contexts[-1])
    cost, device = computed.pass_cost(), str(computed.device)
    predict = with_opening(predicting(computed), model.opening)
    report = observer.phase(f"{title}loss", text_work(config.test))
    if (work := estimate_text(cost, predict, config.test, device)) is not None:
        observer.expect(work)
    result = evaluate_text(predict, split, config.test, config.seed, device, report, config.batch_tokens)
    for context, nats in zip(contexts, result.by_context.nats, strict=True):
        if not bool(nats.isfinite().all()):
            raise RunFailed(f"{computed.name}: losses from a context of {context} are not finite: try precision fp32")
    found: list[RetrievalScore] = []
    if config.retrieval:
        needle_texts = NeedleTexts(model, texts, contexts[-1], config.seed)
        found = _retrieval(computed, needle_texts, config, predict, observer, title)
    gains, held = loss_gains(result.by_context), HoldsTo.of(result.by_context)
    return MeasuredReach(result.losses, gains, held, found, result.by_context)


def _retrieval(
    model: LanguageModel,
    needle_texts: NeedleTexts,
    config: ReachConfig,
    predict: Predict,
    observer: Observer,
    title: str,
) -> list[RetrievalScore]:
    cells = needle_texts.cells(config.contexts, config.needles)
    if not cells:
        return []
    cost, asked = model.pass_cost(), len(config.depths) * config.questions
    report = observer.phase(f"{title}retrieval", asked * len(cells))
    units = (asked,) * len(cells)
    score = scorer(model, config.batch_tokens)
    # without a cache, each value of several tokens takes a pass of its own
    passes = 1 + needle_texts.most_long_values * isinstance(score, PlainScorer)
    operations = [passes * asked * cost.operations(context) for context, _ in cells]
    longest = max(context for context, _ in cells)
    if (work := estimate_windows(cost, predict, units, operations, longest, str(model.device))) is not None:
        observer.expect(work)
    rows = partial(_rows, model, config.batch_tokens)
    return measure_retrieval(score, needle_texts, cells, config.depths, config.questions, rows, model.device, report)


def short_contexts(model: HuggingFace, texts: ReachTexts, config: ReachConfig) -> list[str]:
    """Return a line for each number of needles that some contexts have no room for."""
    if not config.retrieval:
        return []
    needle_texts, lines = NeedleTexts(model, texts, max(config.contexts), config.seed), []
    for number in config.needles:
        least = needle_texts.smallest_context(number)
        if short := [context for context in config.contexts if context < least]:
            what = "one needle" if number == 1 else f"{number} needles"
            listed = ", ".join(map(str, short))
            lines.append(f"retrieval of {what} needs a context of {least} tokens: not measured at {listed}")
    return lines


def _rows(model: LanguageModel, batch_tokens: int, context: int) -> int:
    """Return how many texts are read at once: their cached keys and values stay in memory."""
    return max(1, min(batch_tokens // context, model.memory // (context * model.pass_cost().cached)))


def check_reach_memory(model: LanguageModel, config: ReachConfig, warn: Callable[[str], None]) -> None:
    """Warn if a measurement may not fit into memory; raise BadInput if it cannot."""
    cost, device = model.pass_cost(), str(model.device)
    check_text_memory(cost, config.test, config.batch_tokens, device, warn)
    if config.retrieval:
        context = max(config.contexts)
        rows = _rows(model, config.batch_tokens, context)
        # the cache of the texts, a copy of a part of it, and the copy while it grows by a token
        needed = cost.memory(rows, context, 1) + 3 * rows * context * cost.cached
        smaller = f"use smaller {argument('contexts')}, or leave retrieval out"
        check_memory(needed, device, f"retrieval from a context of {context}", smaller, warn)


def loss_gains(result: ContextLoss) -> list[LossGain]:
    """Return the gain of each context whose half was measured too."""
    gains = []
    for row, context in enumerate(result.contexts):
        if context % 2 == 0 and context // 2 in result.contexts:
            half = result.contexts.index(context // 2)
            change = (result.nats[half].double() - result.nats[row].double())[None]
            mean, low, high = (float(figure[0]) for figure in over_documents(change, result.document))
            known = None if math.isnan(low) else (low, high)
            gains.append(LossGain(context, mean, *(known or (None, None))))
    return gains


def with_opening(predict: Predict, opening: Sequence[int]) -> Predict:
    """Let windows begin with the special tokens that the model reads first in every text.

    They take the place of the first tokens, so that a context has as many tokens as without them.
    """
    if not opening:
        return predict

    def predict_opened(tokens: Int[Tensor, "b t"], last: int) -> tuple[Float[Tensor, "b last"], Bool[Tensor, "b last"]]:
        room = min(len(opening), tokens.shape[1] - last)
        first = torch.tensor(opening[:room], device=tokens.device).expand(len(tokens), -1)
        return predict(torch.cat([first, tokens[:, room:]], dim=1), last)

    return predict_opened


def probe_passages(
    model: HuggingFace, texts: ReachTexts, count: int, seed: int, observer: Observer | None = None
) -> dict[str, Any]:
    """Return how few tokens predictions depend on: the figures of `longreach probe` for `count` passages."""
    config = ProbeConfig(seed=seed)
    chosen = passages(model, texts, min(PASSAGE, model.longest or PASSAGE), count)
    targets = [passage.targets("every", _EVERY, config.window) for passage in chosen]
    work = (observer or Observer()).phase("probe", sum(total_steps(config, some) for some in targets))
    done = 0

    def progress(more: int) -> None:
        nonlocal done
        done += more
        work(done, "")

    return overview([probe(model, one, some, config, progress) for one, some in zip(chosen, targets, strict=True)])
