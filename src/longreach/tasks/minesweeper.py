"""Minesweeper: what an answer needs stands around one place of a grid, near in two dimensions and far in one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join

_END, _EQUALS, _STOP, _FREE, _MINE, _ZERO = 1, 2, 3, 4, 5, 6
_AROUND = tuple((down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0))


@register("task", "minesweeper")
@dataclass(frozen=True, kw_only=True)
class Minesweeper(Worksheet):
    """Say how many mines are next to each cell.  * - - - * - ; =  ->  * 2 1 2 * 1 .

    `length` counts the columns of the grid; it has as many rows, or `rows` (2 in the example).  The cells are written
    row by row, mines as `*`, which the answer repeats.  A free cell needs itself and its up to 8 neighbours: 9-sparse.
    A mine needs only itself.  The mark `;`, ours, stands where the next row would, and the stop is read from it.
    Coupling on two levels as in Cho et al. (NeurIPS 2024): a cell and its answer share the number of their column and
    that of their row, both counted from 2; the sign has 1 and 1.
    """

    paper = "Cho et al., NeurIPS 2024"

    rows: int = 0
    """Rows of the grid; 0 for as many as columns."""
    mines: float = 0.2
    """The probability that a cell is a mine."""

    vocabulary = ("_", ";", "=", ".", "-", "*", "0", "1", "2", "3", "4", "5", "6", "7", "8")
    stop_token = _STOP
    coupling_levels = (Level("column"), Level("row"))

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=")

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ValueError(f"{self.name}.rows must be at least 0, got {self.rows}")
        if not 0 < self.mines < 1:
            raise ValueError(f"{self.name}.mines must be between 0 and 1, got {self.mines}")

    def max_tokens(self, length: int) -> int:
        return length * (self.rows or length) + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length * (self.rows or length) + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        cells = length * (self.rows or length)
        columns = max_length * (self.rows or max_length)
        mine = draws.uniform("mines", columns) < self.mines
        cell = torch.arange(columns, device=length.device).expand_as(mine)
        count = torch.zeros_like(cell)
        for neighbour, there in self._neighbours(cell, length[:, None]):
            count += mine.gather(1, neighbour.clamp(0, columns - 1)) & there
        parts: list[Part] = [(torch.where(mine, _MINE, _FREE), cells), (_END, 1), (_EQUALS, 1)]
        parts += [(torch.where(mine, _MINE, _ZERO + count), cells), (_STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, cells + 2, 2 * cells + 3)

    def _neighbours(
        self, cell: Int[Tensor, "b t"], columns: Int[Tensor, "b 1"]
    ) -> list[tuple[Int[Tensor, "b t"], Bool[Tensor, "b t"]]]:
        """The cells around each cell, and whether they are on the grid."""
        row, column = cell // columns, cell % columns
        found = []
        for down, right in _AROUND:
            r, c = row + down, column + right
            found.append((r * columns + c, (r >= 0) & (r < (self.rows or columns)) & (c >= 0) & (c < columns)))
        return found

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        cells = prompt[:-2]
        rows = self.rows or math.isqrt(len(cells))
        legal = cells and len(cells) % rows == 0 and (self.rows or rows * rows == len(cells))
        if not legal or tuple(prompt[-2:]) != self.ending or not set(cells) <= {"*", "-"}:
            shape = f"{rows} rows" if self.rows else "a square"
            raise BadInput(f"{self.name}: a prompt is {shape} of cells, * or -, and then ; =")
        width = len(cells) // rows
        grid = ["".join(cells[start : start + width]) for start in range(0, len(cells), width)]
        answer = []
        for r, line in enumerate(grid):
            for c, cell in enumerate(line):
                around = [other[max(0, c - 1) : c + 2] for other in grid[max(0, r - 1) : r + 2]]
                answer.append("*" if cell == "*" else str("".join(around).count("*")))
        return answer

    def sparsity(self, length: int) -> int:
        return min(3, length) * min(3, self.rows or length)

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        columns, step = sample.length[:, None], self.step(sample)
        cells = columns * (self.rows or columns)
        inside = step < cells
        cell = step.clamp(min=0)
        free = inside & (sample.tokens.gather(1, cell) == _FREE)
        around = [torch.where(there & free, other, -1) for other, there in self._neighbours(cell, columns)]
        return torch.stack([cell, *around], dim=2)  # the mark stands where a cell more would

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        columns, step = sample.length[:, None], self.step(sample)
        index = torch.arange(step.shape[1], device=step.device)
        cell = torch.where(step >= 0, step, index)
        levels = torch.stack([cell % columns + 2, cell // columns + 2], dim=1)
        return levels.masked_fill((step == -1)[:, None], 1)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        cells = len(tokens) - 2
        return cells // self.rows if self.rows else math.isqrt(cells)
