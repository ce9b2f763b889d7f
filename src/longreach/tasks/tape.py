"""A tape under a moving head: each step reads one cell, but which one is decided while the answer is written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.names import letters

_MARK, _EQUALS, _STOP, _LEFT, _RIGHT, _FIRST_SYMBOL = 1, 2, 3, 4, 5, 6


@register("task", "tape")
@dataclass(frozen=True, kw_only=True)
class Tape(Task):
    """Read a tape while a head moves over it.  a b ^ c d =  ->  c > d < c < b .

    `length` counts the cells.  The mark `^` stands before the cell where the head starts.  The moves and the
    stop are given: drawn while the answer is written, never predicted.  A move is left or right with equal
    probability, and forced at the ends.  A symbol needs the mark, all moves so far and one cell, so the tokens
    it needs grow with the steps.  With the head's cell as ID two tokens suffice, a move and a cell, but no
    schedule of IDs fixed by the prompt can follow: after t moves the head is about sqrt(t) cells away from it.

    Coupling: the cells count from 1, the mark shares its cell's ID, and a symbol of the answer carries the cell
    it was read from.  Published: a move carries the cell where the head stands before it.  Aligned: the cell it
    leads to, and the equals sign carries the start.  The task and both couplings are ours, after the predicted
    position coupling of Golowich et al. (ICML 2025).
    """

    symbols: int = 4
    """How many different symbols there are."""
    steps: Span | None = None
    """Moves of the head: a number, or a range such as 1..8; none: as many as the tape has cells."""

    stop_token = _STOP
    coupling_levels = (Level("cell"),)
    coupling_by_rule = False
    has_given = True

    def __post_init__(self) -> None:
        if self.symbols < 2:
            raise ValueError(f"tape.symbols must be at least 2, got {self.symbols}")
        if self.steps is not None and self.steps.low < 1:
            raise ValueError(f"tape.steps must be at least 1, got {self.steps}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "^", "=", ".", "<", ">", *(letters(number) for number in range(self.symbols)))

    def check_length(self, length: int) -> None:
        if length < 2:
            raise BadInput(f"tape: length counts the cells and must be at least 2, got {length}")

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return 2 * self._most_steps(length) + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        most = self._most_steps(max_length)
        steps = length if self.steps is None else self.steps.draw(draws, "steps")
        cells = draws.below("cells", self.symbols, max_length)
        start = draws.below("start", length[:, None], 1)

        # a free walk, folded at the ends: off the ends it is as free as before, and at an end both moves are one
        free = start + (2 * draws.below("moves", 2, most + 1) - 1).cumsum(1)
        period = 2 * (length[:, None] - 1)
        folded = free % period
        head = torch.cat([start, folded.minimum(period - folded)], dim=1)  # 0-based, one more than is written

        index = torch.arange(max_length + 1, device=length.device)
        tape = cells.gather(1, index - (index > start).long()) + _FIRST_SYMBOL
        read = cells.gather(1, head[:, :-1]) + _FIRST_SYMBOL
        moves = torch.where(head.diff(dim=1) > 0, _RIGHT, _LEFT)
        written = torch.stack([read, moves], dim=2).flatten(1)
        parts: list[Part] = [(tape.masked_fill(index == start, _MARK), length + 1), (_EQUALS, 1)]
        parts += [(written, 2 * steps + 1), (_STOP, 1)]
        sample = build_sample(
            join(parts, self.max_tokens(max_length)),
            length,
            prompt_tokens=length + 2,
            num_tokens=length + 2 * steps + 4,
            hidden={"head": head},
        )
        return replace(sample, given=sample.answer & (self._after(sample) % 2 == 1))  # the moves and the stop

    def solve(self, sample: Sample, row: int) -> list[int]:
        end = int(sample.prompt_tokens[row])
        prompt, drawn = sample.tokens[row, :end].tolist(), sample.tokens[row, end + 1 :: 2].tolist()
        cells = [token for token in prompt if token >= _FIRST_SYMBOL]
        if prompt.count(_MARK) != 1:
            raise BadInput("tape: a prompt has one head")
        head = prompt.index(_MARK)
        answer = [cells[head]]
        for move in drawn:
            if move == _STOP:
                return [*answer, _STOP]
            if move not in (_LEFT, _RIGHT):
                break
            head += 1 if move == _RIGHT else -1
            answer += [move, cells[head]]
        raise BadInput("tape: the prompt alone does not decide the answer, which also needs the moves")

    def sparsity(self, length: int) -> int:
        return self._most_steps(length) + 2  # the moves, the mark and the cell

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        row, column = index[None, :, None], index[None, None, :]
        start, head = self._start(sample), sample.hidden["head"]
        cell = head.gather(1, (self._after(sample) // 2).clamp(0, head.shape[1] - 1))
        cell_token = cell + (cell >= start).long()  # the mark moves the cells behind it on by one
        earlier_move = sample.given[:, None, :] & (column < row)
        needed = (column == start[:, :, None]) | (column == cell_token[:, :, None]) | earlier_move
        return needed & (sample.answer & ~sample.given)[:, :, None]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        fresh = _FIRST_SYMBOL + draws.below("redraw", self.symbols, sample.tokens.shape[1])
        in_prompt = self._after(sample) < 0
        unread = in_prompt & (sample.tokens >= _FIRST_SYMBOL) & ~self.depends_on(sample).any(1)
        return replace(sample, tokens=torch.where(unread, fresh, sample.tokens))

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        after, start = self._after(sample), self._start(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        sign = start + 1 if form == "aligned" else torch.zeros_like(start)
        cell = torch.where(after == -1, sign, index - (index > start).long() + 1)
        answer = torch.zeros_like(cell)
        if "head" in sample.hidden:
            head = sample.hidden["head"]
            moves = (after + 1 if form == "aligned" else after) // 2  # moves made, with or without the one written
            answer = head.gather(1, moves.clamp(0, head.shape[1] - 1)) + 1
        ids = torch.where(after < 0, cell, answer)
        return ids.masked_fill(index >= sample.num_tokens[:, None] - 1, 0)[:, None]  # the stop token is reserved

    def parse(self, text: str) -> list[int]:
        """`a b ^ c d`, with = behind it or not."""
        tokens = super().parse(text.strip().removesuffix("="))
        shape = "".join("c" if token >= _FIRST_SYMBOL else self.vocabulary[token] for token in tokens)
        if shape.count("^") != 1 or set(shape) != {"c", "^"} or shape.endswith("^"):
            raise BadInput(f"tape: a prompt is cells with one ^ in front of the start, as in a b ^ c =, got {text!r}")
        return [*tokens, _EQUALS]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        self.check_length(len(tokens) - 2)
        return len(tokens) - 2

    def _most_steps(self, length: int) -> int:
        return length if self.steps is None else self.steps.high

    @staticmethod
    def _start(sample: Sample) -> Int[Tensor, "b 1"]:
        """Index of the mark, which is the number of cells before it."""
        return (sample.tokens == _MARK).long().argmax(1, keepdim=True)

    @staticmethod
    def _after(sample: Sample) -> Int[Tensor, "b t"]:
        """0 at the first answer token, negative in the prompt; odd at the moves."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return index - sample.prompt_tokens[:, None]
