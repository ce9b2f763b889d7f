"""Induction: what came after this symbol the last time?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Sample, Worksheet, build_sample
from longreach.tasks.names import letters


@register("task", "induction")
@dataclass(frozen=True, kw_only=True)
class Induction(Worksheet):
    """Say what came after the last symbol when it stood here before.  c a b d b a  ->  b

    `length` counts the symbols of the prompt.  The last one stands exactly once before, in any place but the one next
    to it, and is followed there by the answer; all others are any other symbol.  One answer token; it needs the last
    symbol, the same symbol before, and the one behind that: 3-sparse.  What an induction head does, after Olsson
    et al.  No coupling is known.
    """

    paper = "Olsson et al., 2022"

    symbols: int = 26
    """How many different symbols there are."""

    ending = ()

    def __post_init__(self) -> None:
        if self.symbols < 3:
            raise ValueError(f"induction.symbols must be at least 3, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", *(letters(number) for number in range(self.symbols)))

    def check_length(self, length: int) -> None:
        if length < 3:
            raise BadInput(f"induction: length must be at least 3, got {length}")

    def max_tokens(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        facts = {
            "last": draws.below("last", self.symbols, 1),
            "place": draws.below("place", (length[:, None] - 2).clamp(min=1), 1),
        }
        return self._assemble(length, facts, self._others(draws, facts["last"], max_length + 1))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """All others again, but for the one that is the answer."""
        others = self._others(draws, sample.hidden["last"], sample.tokens.shape[1])
        answer = sample.hidden["place"] + 1
        others.scatter_(1, answer, sample.tokens.gather(1, answer) - 1)
        return self._assemble(sample.length, dict(sample.hidden), others)

    def _others(self, draws: Draws, last: Int[Tensor, "b 1"], columns: int) -> Int[Tensor, "b n"]:
        return (last + 1 + draws.below("others", self.symbols - 1, columns)) % self.symbols

    def _assemble(self, length: Int[Tensor, "b"], facts: dict[str, Tensor], others: Int[Tensor, "b n"]) -> Sample:
        index = torch.arange(others.shape[1], device=length.device)
        is_last = (index == facts["place"]) | (index == length[:, None] - 1)
        symbols = torch.where(is_last, facts["last"], others)
        symbols = torch.where(index == length[:, None], symbols.gather(1, facts["place"] + 1), symbols)
        return build_sample(symbols + 1, length, length, length + 1, facts)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        *before, last = prompt
        if before.count(last) != 1 or before[-1] == last:
            raise BadInput(f"induction: a prompt ends with a symbol that stands once before, as in a b c a; got {last}")
        return [before[before.index(last) + 1]]

    def sparsity(self, length: int) -> int:
        return 3

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        place = sample.hidden["place"][:, 0]
        read = torch.stack([sample.prompt_tokens - 1, place, place + 1], dim=1)
        return read[:, None].expand(-1, sample.tokens.shape[1], -1)
