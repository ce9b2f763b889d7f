"""Counting within runs: only what is near matters."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Sample
from longreach.tasks.names import letters
from longreach.tasks.running import Running


@register("task", "local_count")
@dataclass(frozen=True, kw_only=True)
class LocalCount(Running):
    """Count each run of equal symbols.  a a c c c a ; =  ->  1 2 1 2 3 1 .

    `length` counts the symbols.  The lengths of runs are uniform over their range, the last one is cut, and a run has
    another symbol than the one before it.  A count needs its symbol, the symbol before and the count before: 3-sparse.
    The stop is read from the mark.  After Vasylenko et al. (ICLR 2026), where counts start from 0 and stand beside the
    symbols; the layout and the coupling, symbol i and count i share an ID, are ours.
    """

    paper = "Vasylenko et al., ICLR 2026"

    names: int = 16
    """How many different symbols there are."""
    runs: Span = Span(2, 8)
    """How long runs are: a number, or a range such as 2..8."""

    def __post_init__(self) -> None:
        if self.names < 2:
            raise ValueError(f"local_count.names must be at least 2, got {self.names}")
        if self.runs.low < 1:
            raise ValueError(f"local_count.runs must be at least 1, got {self.runs}")

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        return tuple(letters(number) for number in range(self.names))

    @cached_property
    def states(self) -> tuple[str, ...]:
        return tuple(str(count + 1) for count in range(self.runs.high))

    def draw(self, draws: Draws, columns: int) -> Int[Tensor, "b {columns}"]:
        size = self.runs.low + draws.below("runs", self.runs.high - self.runs.low + 1, columns)
        starts = size.cumsum(1).clamp(max=columns)  # of the second run and so on; those beyond go to a last column
        begins = torch.zeros(len(size), columns + 1, dtype=torch.long, device=size.device).scatter_(1, starts, 1)
        run = begins[:, :columns].cumsum(1)
        steps = 1 + draws.below("symbols", self.names - 1, columns)  # to another symbol
        first = draws.below("first", self.names, 1)
        return ((first + steps.cumsum(1)) % self.names).gather(1, run)

    def run(self, symbols: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        index = torch.arange(symbols.shape[1], device=symbols.device)
        begins = symbols != symbols.roll(1, dims=1)
        return index - index.masked_fill(~begins, 0).cummax(1).values

    def follow(self, symbols: Sequence[str]) -> list[str]:
        counts = [str(number + 1) for _, run in groupby(symbols) for number, _ in enumerate(run)]
        if not set(counts) <= set(self.states):
            raise BadInput(f"{self.name}: a prompt is runs of at most {self.runs.high} equal symbols (runs)")
        return counts

    def sparsity(self, length: int) -> int:
        return 3 if length > 1 else 1

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step = self.step(sample)
        inside = (step > 0) & (step < sample.length[:, None])
        return torch.cat([super().reads(sample), torch.where(inside, step - 1, -1)[:, :, None]], dim=2)
