"""How the errors of a planted task grow with the length, as the class says: heads with one free number, the margin.

A head weighs tokens that can be planted 1 and background tokens e^-margin.  A set weighs the product of its tokens, as
k choices of one attention do, and says the law of the label given those of its tokens that can be planted.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.seeding import stream
from longreach.tasks.base import Task
from longreach.tasks.planted import Planted
from longreach.tasks.planted_laws import FixedGaps, SumMod, WindowPositions
from longreach.theory.chain import ChainHead, Dfa, GuessingDfa
from longreach.theory.counts import CountHead
from longreach.theory.errors import SampleMean
from longreach.theory.heads import TheoryHead
from longreach.theory.laws import token_table
from longreach.theory.words import draw

Background = Literal["constant", "fading", "none"]
"""What background tokens weigh: e^-m at every length (softmax); e^-m at the training length and less with the
logarithm of the length (scores that grow with it); nothing (weights that can be zero)."""

_TIE = 1e-9  # masses closer than this are the same sums in another order
_LARGEST = 64.0  # a margin at which no background shows in double precision


class HeadErrors(NamedTuple):
    """Of a head: the mean of 1 - h(X)_Y, how often the likeliest label is wrong, ties broken by lot, and the mean of
    -log h(X)_Y, which a model is trained on."""

    loss: SampleMean
    wrong: SampleMean
    cross_entropy: SampleMean


class Limit(NamedTuple):
    """Errors of what a head says far out.  Labels that tie in the limit may be told apart at every length."""

    loss: float
    wrong: float


@dataclass(frozen=True)
class SignalHeads:
    """The heads of a task, one for each margin and length."""

    task: Planted
    trained_to: int
    """The length at which a fading background weighs e^-margin."""
    background: Background = "constant"
    span: int | None = None
    """The widest set; None: any, as for a model that does not see positions."""

    def __post_init__(self) -> None:
        if not isinstance(self.task.g_star, SumMod):
            raise ValueError(f"the label must be sum_mod to be predicted, got {type(self.task.g_star).__name__}")
        if self.trained_to < 2:
            raise ValueError(f"trained_to must be at least 2, got {self.trained_to}")

    @cached_property
    def dfa(self) -> Dfa:
        assert isinstance(self.task.g_star, SumMod)
        p = self.task.g_star.p
        step = (torch.arange(p)[:, None] + torch.arange(self.task.vocab_size)) % p
        return GuessingDfa(step, torch.eye(p, dtype=torch.float64), self.planted > 0, self.planted)

    @cached_property
    def planted(self) -> Float[Tensor, "v"]:
        return token_table(self.task.q_voc, self.task.vocab_size)

    @cached_property
    def others(self) -> Float[Tensor, "v"]:
        return token_table(self.task.mu, self.task.vocab_size)

    @property
    def lookalikes(self) -> float:
        """How often a token that is not planted could be."""
        return float(self.others[self.planted > 0].sum())

    @property
    def chance(self) -> float:
        """The error of the best answer that reads nothing."""
        return 1 - float(_label_law(self.dfa, self.planted, self.task.k).max())

    def margin_at(self, margin: float, length: int) -> float:
        if self.background == "none":
            return math.inf
        return margin * math.log(length) / math.log(self.trained_to) if self.background == "fading" else margin

    def head(self, margin: float, length: int) -> TheoryHead:
        u = self._weights(self.margin_at(margin, length))
        if self.span is None:
            return CountHead(self.task.k, u, self.dfa)
        return ChainHead(u.repeat(self.task.k, 1), None, self.dfa, self.span)

    def errors(self, margin: float, length: int, samples: int = 4000, seed: int = 0) -> HeadErrors:
        """Over samples that are the same for every margin, so that errors are comparable among margins."""
        if samples < 2:
            raise ValueError(f"samples must be at least 2, got {samples}")
        self.task.check_length(length)
        head, task = self.head(margin, length), self.task
        numbers = torch.arange(samples)
        right, wrong = [], []
        for part in torch.split(numbers, max(1, (1 << 22) // length)):
            draws = stream(seed, f"theory growth/{length}", part)
            where = task.q_pos.sample(task.k, torch.full_like(part, length), draws.child("q_pos"), length)
            planted = draw(self.planted, draws.uniform("q_voc", task.k))
            tokens = draw(self.others, draws.uniform("mu", length)).scatter(1, where, planted)
            label = task.g_star.label(planted)[:, None]
            said = head.forward(tokens)
            best = said >= said.amax(1, keepdim=True) * (1 - _TIE)
            right.append(said.gather(1, label)[:, 0])
            wrong.append(1 - (best.gather(1, label) / best.sum(1, keepdim=True))[:, 0].double())
        share = torch.cat(right)
        return HeadErrors(_estimate(1 - share), _estimate(torch.cat(wrong)), _estimate(-share.log()))

    def limit(self, margin: float) -> Limit:
        """By the law of large numbers a head says far out what k tokens of the background say, drawn in proportion to
        their weights: without look-alikes, a guess.  Where it weighs nothing, the planted set alone is heard."""
        far = self._far(margin)
        pull = self.others * self._weights(far)
        if not float(pull.sum()):
            return Limit(0.0, 0.0)
        labels = _label_law(self.dfa, self.planted, self.task.k)
        said = _label_law(self.dfa, pull / pull.sum(), self.task.k)
        best = said >= said.max() * (1 - _TIE)
        return Limit(1 - float(labels @ said), 1 - float(labels[best].mean()))

    def _far(self, margin: float) -> float:
        """The margin at infinite length.  A fading background, l tokens of weight l^-c, is lost if c is above 1; within
        a span sets of k of them count, of which there are l: if c is above 1/k."""
        if self.background != "fading":
            return self.margin_at(margin, self.trained_to)
        fades = margin / math.log(self.trained_to) * (1 if self.span is None else self.task.k) > 1
        return math.inf if fades or self.lookalikes else 0.0

    def _weights(self, margin: float) -> Float[Tensor, "v"]:
        return torch.where(self.planted > 0, 1.0, math.exp(-margin)).double()


def match_margin(
    heads: SignalHeads,
    length: int,
    error: float,
    by: Literal["loss", "wrong", "cross_entropy"] = "wrong",
    samples: int = 4000,
    seed: int = 0,
) -> float:
    """The least margin at which the error at this length is not above `error`; infinite if none is enough."""
    if not error >= 0:
        raise ValueError(f"error must not be negative, got {error}")

    def at(margin: float) -> float:
        estimate: SampleMean = getattr(heads.errors(margin, length, samples, seed), by)
        return estimate.mean

    if heads.background == "none" or at(math.inf) > error:
        return math.inf
    low, high = 0.0, _LARGEST
    if at(low) <= error:
        return low
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle) <= error else (middle, high)
    return high


def predict_growth(
    heads: SignalHeads, margin: float, lengths: list[int], samples: int = 4000, seed: int = 0
) -> dict[int, HeadErrors]:
    """The errors at all lengths, from one margin."""
    return {length: heads.errors(margin, length, samples, seed) for length in lengths}


def signal_heads(task: Task, trained_to: int, background: Background, sees_positions: bool) -> SignalHeads:
    """The heads to set a trained model against.  One that sees positions may know that planted tokens stand together;
    to one that does not, sets at any distance are alike."""
    if not isinstance(task, Planted):
        raise ValueError(f"errors are predicted for planted tasks only, got {task.name}")
    span = None
    if sees_positions and isinstance(task.q_pos, WindowPositions):
        span = task.q_pos.width - 1
    if sees_positions and isinstance(task.q_pos, FixedGaps):
        span = sum(task.q_pos.gaps)
    return SignalHeads(task, trained_to, background, span)


def _label_law(dfa: Dfa, tokens: Float[Tensor, "v"], k: int) -> Float[Tensor, "c"]:
    """Of the label of k independent tokens."""
    move = torch.tensordot(tokens, dfa.moves, 1)
    after: Tensor = torch.linalg.matrix_power(move, k)
    return after[0] @ dfa.output


def _estimate(values: Float[Tensor, "n"]) -> SampleMean:
    return SampleMean(float(values.mean()), float(values.std()) / len(values) ** 0.5)
