"""A tape read by a moving head: IDs must be predicted step by step, and errors add up over the steps."""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, pi, sqrt

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.seeding import Draws
from longreach.theory.words import check_laws

TokenScores = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From cells [b, n], IDs [b] (the cell of the head, from 0) and moves [b] (0 left, 1 right): scores of symbols."""
IdScores = Callable[[Tensor], Tensor]
"""From moves [b]: scores of the steps -1, 0, 1 of the ID."""


@dataclass(frozen=True, eq=False)
class TapeHead:
    """Predicts the next symbol from the move and one cell near the head: 2-sparse, and local in IDs."""

    a: Float[Tensor, "d two v"]
    """Weight, by distance -w..w of the cell from the head, move and symbol."""
    g: Float[Tensor, "two v c"]
    """A law over symbols, by move and symbol in the cell."""

    def __post_init__(self) -> None:
        if len(self.a) % 2 != 1 or self.a.shape[1:] != self.g.shape[:2]:
            raise ValueError(f"a must be 2w + 1 tables of the rows of g, got {tuple(self.a.shape)}")
        if not bool((self.a >= 0).all()) or not bool(self.a.isfinite().all()):
            raise ValueError(f"a must be finite and must not be negative, got {float(self.a.min()):.6g}")
        check_laws("g", self.g)

    def __call__(
        self, cells: Int[Tensor, "b n"], ids: Int[Tensor, "b"], moves: Int[Tensor, "b"]
    ) -> Float[Tensor, "b c"]:
        w = len(self.a) // 2
        distance = torch.arange(-w, w + 1)
        near = ids[:, None] + distance
        on_tape = (near >= 0) & (near < cells.shape[1])
        symbol = cells.gather(1, near.clamp(0, cells.shape[1] - 1))
        weight = self.a[distance + w, moves[:, None], symbol] * on_tape
        mass = (weight[..., None] * self.g[moves[:, None], symbol]).sum(1)
        total = weight.sum(1, keepdim=True)
        return torch.where(total > 0, mass / total.where(total > 0, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class IdHead:
    """Predicts the step of the ID from the move: 1-sparse."""

    g: Float[Tensor, "two three"]
    """A law over the steps -1, 0, 1 for each move."""

    def __post_init__(self) -> None:
        check_laws("g", self.g)

    def __call__(self, moves: Int[Tensor, "b"]) -> Float[Tensor, "b three"]:
        return self.g[moves]


@dataclass(frozen=True, eq=False)
class Walk:
    """Where the head of the tape goes: moves are drawn, and forced at the ends."""

    cells: Int[Tensor, "b n"]
    ids: Int[Tensor, "b s"]
    """The cell of the head before each move and after the last."""
    moves: Int[Tensor, "b t"]

    @property
    def symbols(self) -> Int[Tensor, "b t"]:
        """What is read after each move."""
        return self.cells.gather(1, self.ids[:, 1:])


@dataclass(frozen=True, eq=False)
class Rollout:
    """What was predicted, with each step's ID as the start of the next."""

    symbols: Int[Tensor, "b t"]
    ids: Int[Tensor, "b t"]
    right: Bool[Tensor, "b"]
    """Whether all symbols are right."""


def walk(cells: Int[Tensor, "b n"], start: Int[Tensor, "b"], steps: int, draws: Draws) -> Walk:
    """Draw the moves."""
    if cells.shape[1] < 2:
        raise ValueError(f"a tape must have at least 2 cells, got {cells.shape[1]}")
    if not 0 <= int(start.min()) <= int(start.max()) < cells.shape[1]:
        raise ValueError(f"start must be a cell from 0 to {cells.shape[1] - 1}, got {start.tolist()}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    wish = draws.below("moves", 2, steps)
    ids, moves = [start], []
    for column in wish.unbind(1):
        move = torch.where(ids[-1] == 0, 1, torch.where(ids[-1] == cells.shape[1] - 1, 0, column))
        moves.append(move)
        ids.append(ids[-1] + 2 * move - 1)
    return Walk(cells, torch.stack(ids, dim=1), torch.stack(moves, dim=1))


def ppc_rollout(token_head: TokenScores, id_head: IdScores, path: Walk) -> Rollout:
    """Predicted position coupling [paper's]: best guesses of symbols and IDs, from the first cell and the moves."""
    at = path.ids[:, 0]
    symbols, ids = [], []
    for move in path.moves.unbind(1):
        symbols.append(token_head(path.cells, at, move).argmax(1))
        at = at + id_head(move).argmax(1) - 1
        ids.append(at)
    guessed = torch.stack(symbols, dim=1)
    return Rollout(guessed, torch.stack(ids, dim=1), (guessed == path.symbols).all(1))


def teacher_forced(token_head: TokenScores, id_head: IdScores, path: Walk) -> tuple[float, float]:
    """The errors 1 - h(X)_Y of both heads, averaged over the steps, with all IDs before the step right."""
    token, step = [], []
    for column, move in enumerate(path.moves.unbind(1)):
        scores = token_head(path.cells, path.ids[:, column], move)
        token.append(1 - scores.gather(1, path.symbols[:, column, None]))
        step.append(1 - id_head(move).gather(1, 2 * move[:, None]))
    return float(torch.cat(token).mean()), float(torch.cat(step).mean())


def schedule_hit(steps: int, w: int) -> float:
    """The best chance of any ID fixed by the prompt to be within w cells of the head after so many free moves."""
    if steps < 1 or w < 0:
        raise ValueError(f"steps must be at least 1 and w at least 0, got {steps} and {w}")
    # the head is at even distances only, or at odd ones: w + 1 of its places fit into a window, best in the middle
    lowest = max(0, (steps - w) // 2)
    return sum(comb(steps, rights) for rights in range(lowest, min(steps, lowest + w) + 1)) / (1 << steps)


def schedule_bound(steps: int, w: int) -> float:
    """(w + 1) sqrt(2 / (pi t)), which is at least that chance [ours]."""
    return (w + 1) * sqrt(2 / (pi * steps))
