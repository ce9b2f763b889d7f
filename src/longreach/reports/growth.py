"""Errors of trained models on planted tasks beside those of the theory's heads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from longreach.config.registry import name_of
from longreach.errors import BadInput
from longreach.evaluation import Score
from longreach.reports.load import RunResult, load_runs
from longreach.theory.growth import Background, HeadErrors, Limit, SignalHeads, match_margin, signal_heads

BACKGROUNDS: dict[str, Background] = {
    "softmax": "constant",
    "scaled_softmax": "fading",
    "entmax": "none",
    "asentmax": "none",
    "top_k": "none",
}
"""What an attention does to background tokens, for those that the theory speaks of."""

By = Literal["error", "loss"]
"""What fixes the margin: wrong answers at a tested length, or the loss that training ended with."""

_METRIC = "token_em_tf"
_LAST = 0.2  # the share of the training whose losses count as those it ended with


class Measured(NamedTuple):
    """Wrong answers of all seeds at a length, with Wilson's interval, and of the worst seed."""

    wrong: float
    low: float
    high: float
    worst: float


class PredictedErrors(NamedTuple):
    """An interval for wrong answers, and one for the loss 1 - h(X)_Y."""

    low: float
    high: float
    low_loss: float
    high_loss: float


@dataclass(frozen=True)
class GrowthComparison:
    """The seeds of one setting against the heads that share their errors where the margin is fixed."""

    name: str
    """Of the runs."""
    attention: str
    k: int
    rho: float
    """How often background looks like a planted token."""
    seeds: list[int]
    trained_to: int
    chance: float
    """The error of the best answer that reads nothing."""
    fixed_at: int | None
    """The tested length whose errors fix the free number; None: no tested length does."""
    margins: list[tuple[float, float]]
    """The smallest and the largest that go with what was measured, for each seed.  Where background weighs nothing they
    are infinite, and the free number is a share of wrong answers that no length changes."""
    measured: dict[int, Measured]
    predicted: dict[int, PredictedErrors]
    limits: tuple[Limit, Limit]
    """Where the errors of the first seed's largest and smallest margin tend to."""

    @property
    def verdict(self) -> str:
        """By intervals, at all tested lengths beyond training but the one that fixes the margin.

        `not learned`: at training length the error is above half of chance.  `grows faster` or `slower`: at some
        length the measured interval is above or below the predicted one; `another shape`: both.  Else they meet
        everywhere: `as predicted`, or `nothing excluded` if every predicted interval is wider than half of chance.
        """
        trained = [length for length in self.measured if length <= self.trained_to]
        if trained and self.measured[max(trained)].wrong > self.chance / 2:
            return "not learned"
        told = [n for n in self.measured if n > self.trained_to and n != self.fixed_at]
        faster = any(self.measured[n].low > self.predicted[n].high for n in told)
        slower = any(self.measured[n].high < self.predicted[n].low for n in told)
        if faster and slower:
            return "another shape"
        if faster or slower:
            return "grows faster" if faster else "grows slower"
        wide = all(self.predicted[n].high - self.predicted[n].low > self.chance / 2 for n in told)
        return "nothing excluded" if wide else "as predicted"

    def rows(self) -> list[dict[str, str | int | float]]:
        """One for each length, flat."""
        head: dict[str, str | int | float] = {
            "runs": self.name, "attention": self.attention, "k": self.k, "rho": self.rho, "seeds": len(self.seeds),
            "verdict": self.verdict,
        }  # fmt: skip
        return [
            {**head, "length": length, **self.measured[length]._asdict(),
             **{f"predicted_{name}": value for name, value in self.predicted[length]._asdict().items()}}
            for length in self.measured
        ]  # fmt: skip


def compare(
    paths: Sequence[Path], at: int | None = None, by: By = "error", samples: int = 2000, trust: bool = False
) -> tuple[list[GrowthComparison], list[str]]:
    """Compare all finished runs below the paths, and return a line for each that is not finished.

    See `RunFolder.config` for `trust`.
    """
    if at is not None and by == "loss":
        raise BadInput(f"the loss is that of training: a tested length has no say in it, got {at}")
    results, unfinished = load_runs(paths)
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.folder.compared_settings(), []).append(result)
    found = [_compare(group, at, by, samples, trust) for group in groups.values()]
    order = list(BACKGROUNDS)
    return sorted(found, key=lambda c: (c.rho, order.index(c.attention), c.k)), unfinished


def _compare(results: list[RunResult], at: int | None, by: By, samples: int, trust: bool) -> GrowthComparison:
    first = results[0]
    attention, heads = _heads(first, trust)
    by_seed = [_scores(result) for result in results]
    lengths = sorted(by_seed[0])
    has_margin = heads.background != "none"
    fixed_at = None if has_margin and by == "loss" else _fixing_length(first, lengths, at)

    @cache
    def match(length: int, error: float, of: Literal["wrong", "cross_entropy"]) -> float:
        return match_margin(heads, length, error, of, samples)

    @cache
    def errors(length: int, margin: float) -> HeadErrors:
        return heads.errors(margin, length, samples)

    margins, remainders = [], []
    for result, scores in zip(results, by_seed, strict=True):
        low, high = scores[fixed_at].interval() if fixed_at is not None else _last_losses(result)
        remainder = (0.0, 0.0)
        if fixed_at is not None and has_margin:
            # without a single error there is no largest margin
            margin = match(fixed_at, high, "wrong"), match(fixed_at, low, "wrong") if low > 0 else math.inf
        elif fixed_at is not None:
            margin = math.inf, math.inf
            own = errors(fixed_at, math.inf).wrong.mean
            remainder = max(0.0, low - own), max(0.0, high - own)
        else:
            length = sum(result.trained_lengths or ()) // 2
            margin = match(length, high, "cross_entropy"), match(length, low, "cross_entropy")
        margins.append(margin)
        remainders.append(remainder)
    predicted = {
        length: _mean(
            [_interval([errors(length, m) for m in pair], rest) for pair, rest in zip(margins, remainders, strict=True)]
        )
        for length in lengths
    }
    smallest, largest = margins[0]
    return GrowthComparison(
        name=first.variant,
        attention=attention,
        k=heads.task.k,
        rho=heads.lookalikes,
        seeds=[result.seed for result in results],
        trained_to=first.trained_to,
        chance=heads.chance,
        fixed_at=fixed_at,
        margins=margins,
        measured={length: _pool([scores[length] for scores in by_seed]) for length in lengths},
        predicted=predicted,
        limits=(heads.limit(largest), heads.limit(smallest)),
    )


def _interval(ends: list[HeadErrors], remainder: tuple[float, float]) -> PredictedErrors:
    """Between two margins, two standard errors wider, with errors on top that no length changes."""
    low = min(end.wrong.mean - 2 * end.wrong.se for end in ends) + remainder[0]
    high = max(end.wrong.mean + 2 * end.wrong.se for end in ends) + remainder[1]
    losses = [end.loss.mean for end in ends]
    return PredictedErrors(max(0.0, low), min(1.0, high), min(losses), max(losses))


def _mean(of_seeds: list[PredictedErrors]) -> PredictedErrors:
    return PredictedErrors(*(sum(column) / len(of_seeds) for column in zip(*of_seeds, strict=True)))


def _heads(result: RunResult, trust: bool) -> tuple[str, SignalHeads]:
    """The name of a run's attention, and the heads to set it against."""
    config = result.folder.config(trust)
    attention = getattr(config.model, "attention", None)
    name = "none" if attention is None else name_of(type(attention))
    try:
        heads = signal_heads(
            config.task,
            result.trained_to,
            BACKGROUNDS.get(name, "constant"),
            sees_positions=name_of(type(getattr(config.model, "encoding", None))) != "none",
        )
    except ValueError as error:
        raise BadInput(f"{result.folder.path}: {error}") from error
    if name not in BACKGROUNDS:
        raise BadInput(f"{result.folder.path}: the theory has no prediction for attention {name}")
    return name, heads


def _scores(result: RunResult) -> dict[int, Score]:
    """Wrong answers by length, where the task was as in training."""
    plain = [score for score in result.scores if score.metric == _METRIC and not score.overrides]
    if not plain:
        raise BadInput(f"{result.folder.path} was not tested on the task that it was trained on")
    return {s.length: Score(s.seed, s.length, "wrong", s.samples - s.hits, s.samples) for s in plain}


def _fixing_length(result: RunResult, lengths: list[int], at: int | None) -> int:
    if at is not None and at not in lengths:
        raise BadInput(f"{result.folder.path} was not tested at length {at}, but at {', '.join(map(str, lengths))}")
    trained = [length for length in lengths if length <= result.trained_to]
    if at is None and not trained:
        raise BadInput(
            f"{result.folder.path} was tested at no training length: say with --at which length to start from"
        )
    return max(trained) if at is None else at


def _last_losses(result: RunResult) -> tuple[float, float]:
    """The smallest and the largest loss per token that the end of the training logged."""
    lines = [line for line in result.folder.metrics() if "loss" in line]
    if not lines:
        raise BadInput(f"{result.folder.path} has no training loss in its metrics.jsonl")
    last = lines[-1]["step"]
    losses = [float(line["loss"]) for line in lines if line["step"] >= (1 - _LAST) * last]
    return min(losses), max(losses)


def _pool(scores: list[Score]) -> Measured:
    pooled = Score(0, scores[0].length, "wrong", sum(s.hits for s in scores), sum(s.samples for s in scores))
    return Measured(pooled.rate, *pooled.interval(), max(score.rate for score in scores))
