"""The test of a model on text: loss against the size of the context and against position."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longreach.config import build
from longreach.errors import BadInput, argument
from longreach.evaluation.context import (
    ContextLoss,
    PositionLoss,
    Predict,
    choose_targets,
    loss_by_context,
    loss_by_position,
)
from longreach.evaluation.cost import PassCost, memory_of_text
from longreach.evaluation.documents import over_documents, resampled_documents
from longreach.evaluation.evaluate import EvalConfig
from longreach.evaluation.scores import Score
from longreach.execution import ExecutionConfig
from longreach.system.capacity import check_memory
from longreach.text import Split

RISE = 0.05
"""Nats by which a loss may rise above the least at shorter contexts, and still counts as held."""
By = Literal["context", "position"]
"""What a loss is told against."""


@dataclass(frozen=True)
class Loss:
    """One point of a curve of losses, with an interval over documents (95%, bootstrap)."""

    seed: int
    by: By
    size: int
    """Tokens of context, or the position that its bucket begins with."""
    nats: float
    low: float | None
    """None where there is one document only, and so no interval."""
    high: float | None
    tokens: int
    documents: int


def losses_to_json(losses: Iterable[Loss]) -> list[dict[str, Any]]:
    return [asdict(loss) for loss in losses]


def losses_from_json(rows: Iterable[Mapping[str, Any]]) -> list[Loss]:
    """Return the losses of a file; raise ValueError for values that no test writes."""
    if not isinstance(rows, list):
        raise ValueError(f"expected a list of losses, got {rows!r:.40}")
    losses = [build(Loss, row, f"loss {number}") for number, row in enumerate(rows)]
    for number, loss in enumerate(losses):
        figures = [figure for figure in (loss.nats, loss.low, loss.high) if figure is not None]
        if not all(map(math.isfinite, figures)) or min(loss.size, loss.tokens, loss.documents) < 0:
            raise ValueError(f"loss {number} is not finite, or has negative counts")
    return losses


def sizes_held(nats: Float[Tensor, "c n"]) -> Int[Tensor, "n"]:
    """Return for each curve how many of its sizes come before its first rise, from losses by increasing size.

    A loss has risen where it is more than RISE above the least at smaller sizes.
    """
    least = nats.cummin(0).values
    risen = nats[1:] > least[:-1] + RISE
    return 1 + (risen.cumsum(0) == 0).sum(0)


@dataclass(frozen=True)
class HoldsTo:
    """The longest context up to which the loss has not risen, with an interval over documents (95%, bootstrap)."""

    context: int
    low: int | None
    """None where there is one document only, and so no interval."""
    high: int | None

    @classmethod
    def of(cls, result: ContextLoss) -> "HoldsTo":
        nats, documents = result.nats.double(), _different(result.document)
        held = int(sizes_held(nats.mean(1, keepdim=True)))
        if documents == 1:
            return cls(result.contexts[held - 1], None, None)
        weights = resampled_documents(result.document).T
        means = nats @ weights / weights.sum(0)
        ends = sizes_held(means).sort().values
        low, high = (int(ends[round(share * (len(ends) - 1))]) for share in (0.025, 0.975))
        return cls(result.contexts[held - 1], result.contexts[low - 1], result.contexts[high - 1])

    def __str__(self) -> str:
        interval = "" if self.low is None else f" ({self.low} to {self.high})"
        return f"{self.context}{interval}"


@dataclass(frozen=True)
class TextResult:
    """What a test on text gives."""

    losses: list[Loss]
    by_context: ContextLoss
    """Every token's, for whoever asks which tokens lose."""
    scores: list[Score]
    """How often the likeliest token is the right one, by context."""


def check_text_test(config: EvalConfig) -> None:
    """Refuse settings that a test on text has no use for."""
    if config.free_samples:
        raise BadInput("text is scored by its loss, and nothing is generated: set evaluate.free_samples to 0")
    unused = {"axes": {}, "relabel_ids": False, "prompt_ids_only": False, "control": "none"}
    for name, default in unused.items():
        if getattr(config, name) != default:
            raise BadInput(f"evaluate.{name} does not concern text")


def check_text_memory(
    cost: PassCost, config: EvalConfig, batch_tokens: int, device: str, warn: Callable[[str], None]
) -> None:
    """Warn if a test on text may not fit into memory; raise BadInput if it cannot."""
    needed, context = memory_of_text(cost, config, batch_tokens)
    smaller = f"use smaller {argument('contexts')} or {argument('batch_tokens')}"
    check_memory(needed, device, f"a context of {context}", smaller, warn)


def text_work(config: EvalConfig) -> int:
    """What `evaluate_text` tells its progress out of."""
    return len(list(config.lengths)) * config.samples


def evaluate_text(
    predict: Predict,
    split: Split,
    config: EvalConfig,
    seed: int,
    device: str,
    progress: Callable[[int, str], None] = lambda done, note: None,
    batch_tokens: int = ExecutionConfig.batch_tokens,
) -> TextResult:
    """`config.lengths` are the sizes of context; about `config.samples` tokens are predicted from each."""
    contexts = sorted(config.lengths)
    targets = choose_targets(split, config.samples, contexts[-1], config.seed)
    by_context = loss_by_context(predict, split, targets, contexts, batch_tokens, device, progress)
    by_position = loss_by_position(predict, split, targets, contexts[-1], batch_tokens, device)
    losses = [*_by_context(by_context, seed), *_by_position(by_position, seed)]
    scores = [
        Score(seed, context, "next_token", int(right.sum()), len(right))
        for context, right in zip(contexts, by_context.right, strict=True)
    ]
    return TextResult(losses, by_context, scores)


def _by_context(result: ContextLoss, seed: int) -> list[Loss]:
    counts = result.nats.shape[1], _different(result.document)
    ends = zip(*over_documents(result.nats, result.document), strict=True)
    return [
        Loss(seed, "context", size, *_known(*mean_low_high), *counts)
        for size, mean_low_high in zip(result.contexts, ends, strict=True)
    ]


def _by_position(result: PositionLoss, seed: int) -> list[Loss]:
    counts = torch.diff(result.edges) * len(result.nats)
    documents = _different(result.document)
    ends = zip(*over_documents(result.nats.T, result.document), strict=True)
    return [
        Loss(seed, "position", int(edge), *_known(*mean_low_high), int(count), documents)
        for edge, mean_low_high, count in zip(result.edges[:-1], ends, counts, strict=True)
    ]


def _different(document: Int[Tensor, "n"]) -> int:
    return len(set(document.tolist()))


def _known(mean: Tensor, low: Tensor, high: Tensor) -> tuple[float, float | None, float | None]:
    if math.isnan(low):
        return float(mean), None, None
    return float(mean), float(low), float(high)
