"""Heads whose weights factorize along the set and whose prediction is an automaton's: no listing of sets is needed."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from longreach.theory.heads import SparseHead, TheoryHead, check_tokens
from longreach.theory.types import GapTypes
from longreach.theory.words import check_laws, words

_AT_ONCE = 1 << 22  # partial sums held in memory at a time


@dataclass(frozen=True, eq=False)
class Dfa:
    """An automaton that starts in state 0."""

    step: Int[Tensor, "q v"]
    """The next state, by state and token."""
    output: Float[Tensor, "q c"]
    """A law over the classes for each state."""

    def __post_init__(self) -> None:
        if len(self.step) != len(self.output):
            raise ValueError(f"output must have a row for each of the {len(self.step)} states, got {len(self.output)}")
        if not 0 <= int(self.step.min()) <= int(self.step.max()) < len(self.step):
            raise ValueError(f"step must lead to states 0 to {len(self.step) - 1}, got {self.step.tolist()}")
        check_laws("output", self.output)

    @cached_property
    def moves(self) -> Float[Tensor, "v q q"]:
        """By token: 1 from each state to the next."""
        return F.one_hot(self.step.T, len(self.step)).double()

    def answer(self, tokens: Int[Tensor, "n k"]) -> Float[Tensor, "n c"]:
        """The law over the classes after each word."""
        state = F.one_hot(torch.zeros(len(tokens), dtype=torch.long), len(self.step)).double()
        for token in tokens.unbind(1):
            state = (state[:, None] @ self.moves[token])[:, 0]
        return state @ self.output

    def run(self, tokens: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        """The last state."""
        state = torch.zeros(len(tokens), dtype=torch.long)
        for token in tokens.unbind(1):
            state = self.step[state, token]
        return state


@dataclass(frozen=True, eq=False)
class GuessingDfa(Dfa):
    """An automaton that cannot read some tokens and guesses one in place of each."""

    readable: Bool[Tensor, "v"]
    """Which tokens it can read."""
    guess: Float[Tensor, "v"]
    """The law that others are drawn from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_laws("guess", self.guess)

    @cached_property
    def moves(self) -> Float[Tensor, "v q q"]:
        exact = F.one_hot(self.step.T, len(self.step)).double()
        return torch.where(self.readable[:, None, None], exact, torch.tensordot(self.guess, exact, 1))

    def run(self, tokens: Int[Tensor, "n k"]) -> Int[Tensor, "n"]:
        raise ValueError("an automaton that guesses has no one last state")


@dataclass(frozen=True, eq=False)
class ChainHead(TheoryHead):
    """A(S, X) = prod_i u_i(X_{s_i}) prod_i v_i(s_{i+1} - s_i), g(X_S) = output of the automaton that reads X_S.

    The mass of all sets that end in a state is summed position by position: l k w^2 Q steps with a span of at
    most w, l k G Q with gaps of at most G, l k Q with free gaps; never a power of k.
    """

    u: Float[Tensor, "k v"]
    """Weight of each token as the i-th of the set."""
    v: Float[Tensor, "g d"] | None
    """Weight of gaps 1, 2, ... behind the i-th, k - 1 rows; larger gaps have weight 0.  None: all gaps alike."""
    dfa: Dfa
    span: int | None = None
    """The largest s_k - s_1; None: as the gaps allow."""

    def __post_init__(self) -> None:
        if len(self.u) < 1:
            raise ValueError(f"k must be at least 1, got {len(self.u)}")
        if self.v is not None and len(self.v) != self.k - 1:
            raise ValueError(f"v must have {self.k - 1} rows, got {len(self.v)}")
        for name, table in (("u", self.u), ("v", self.v)):
            if table is not None and not (bool((table >= 0).all()) and bool(table.isfinite().all())):
                raise ValueError(f"{name} must be finite and must not be negative, got {float(table.min()):.6g}")
        if self.u.shape[1] != self.dfa.step.shape[1]:
            raise ValueError(f"u must have a column for each of {self.dfa.step.shape[1]} tokens, got {self.u.shape[1]}")
        if self.span is not None and self.span < self.k - 1:
            raise ValueError(f"span must be at least {self.k - 1} for k={self.k}, got {self.span}")

    @property
    def k(self) -> int:
        return len(self.u)

    @property
    def g(self) -> Float[Tensor, "q c"]:  # type: ignore[override]
        return self.dfa.output

    @cached_property
    def _moves(self) -> Float[Tensor, "k v q q"]:
        """Weight of a step from state to state, by place in the set and token."""
        return self.u[:, :, None, None] * self.dfa.moves

    def mass(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b q"]:
        check_tokens(tokens, self.u.shape[1])
        length = tokens.shape[1]
        if length < self.k or (self.span is not None and length <= self.span):
            least = self.k if self.span is None else self.span + 1
            raise ValueError(f"length must be at least {least}, got {length}")
        width = 1 if self.span is None else self.span + 1
        rows = max(1, _AT_ONCE // (length * width * len(self.dfa.step) ** 2))
        sums = self._within_span if self.span is not None else self._along
        return torch.cat([sums(part) for part in torch.split(tokens, rows)])

    def _along(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b q"]:
        """Sums by the position of the last token so far."""
        sums = self._moves[0][tokens][:, :, 0]
        for place in range(1, self.k):
            sums = (self._behind(sums, place - 1)[..., None] * self._moves[place][tokens]).sum(-2)
        return sums.sum(1)

    def _behind(self, sums: Float[Tensor, "b l q"], gap: int) -> Float[Tensor, "b l q"]:
        """To each position from all before it."""
        if self.v is None:
            return sums.cumsum(1).roll(1, 1).index_fill(1, torch.tensor([0]), 0.0)
        total = torch.zeros_like(sums)
        for distance, weight in enumerate(self.v[gap, : sums.shape[1] - 1].tolist(), start=1):
            total[:, distance:].add_(sums[:, :-distance], alpha=weight)
        return total

    def _within_span(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b q"]:
        """Sums by the position of the first token and the distance of the last so far, at most the span."""
        assert self.span is not None
        width = self.span + 1
        sums = torch.zeros(*tokens.shape, width, len(self.dfa.step), dtype=torch.float64)
        sums[:, :, 0] = self._moves[0][tokens][:, :, 0]
        for place in range(1, self.k):
            arrived = torch.einsum("de,bldq->bleq", self._steps(place - 1), sums)
            moves = F.pad(self._moves[place][tokens], (0, 0, 0, 0, 0, self.span))  # nothing beyond the end
            window = moves.unfold(1, width, 1).permute(0, 1, 4, 2, 3)  # at each distance, without a copy
            sums = (arrived[..., None] * window).sum(-2)
        return sums.sum((1, 2))

    def _steps(self, gap: int) -> Float[Tensor, "d e"]:
        """The weight of a gap that leads from one distance to another."""
        assert self.span is not None
        distance = torch.arange(self.span + 1)
        step = distance - distance[:, None]
        if self.v is None:
            return (step > 0).double()
        weight = F.pad(self.v[gap], (1, max(0, self.span - self.v.shape[1])))
        return weight[step.clamp(min=0)]

    def listed(self, length: int) -> SparseHead:
        """The same head as tables, with the span it can have at this length."""
        reach = length - 1 if self.v is None else (self.k - 1) * self.v.shape[1]
        types = GapTypes(self.k, max(self.k - 1, min(length - 1, reach if self.span is None else self.span)))
        gaps = types.shapes.diff(dim=1)
        by_type = torch.ones(len(gaps), dtype=torch.float64)
        if self.v is not None:
            known = F.pad(self.v, (1, types.w))
            by_type = known[torch.arange(self.k - 1), gaps].prod(1)
        word = words(self.u.shape[1], self.k)
        by_word = self.u[torch.arange(self.k), word].prod(1)
        return SparseHead(types, by_type[:, None] * by_word, self.dfa.answer(word))
