"""Induction, again and again: what followed the last time, and what followed that the last time before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Part, Sample, Worksheet, build_sample, join
from longreach.tasks.names import letters

_END, _EQUALS, _FIRST = 1, 2, 3


@register("task", "hop_induction")
@dataclass(frozen=True, kw_only=True)
class HopInduction(Worksheet):
    """Hop to what followed the same symbol the last time before.  ; b c a b a =  ->  c.

    `length` counts the symbols, drawn uniformly.  From the last symbol, a hop finds the nearest same symbol before it
    and goes to the one behind that: in the example from the last `a` to the `b` behind the first, and from there to
    `c`.  Where there is no such symbol the answer is the mark `;`, which stands in front.  The answer needs the last
    symbol and for each hop the one found and the one behind it: k = 1 + 2 hops, at places that depend on the input.  By
    the task's law nothing nearer is the same.  No coupling is known.
    """

    paper = "Sanford et al., ICML 2024"

    hops: int = 2
    """How many hops; with 1 it is an induction head."""
    symbols: int = 4
    """How many different symbols there are."""

    def __post_init__(self) -> None:
        if self.hops < 1:
            raise ValueError(f"hop_induction.hops must be at least 1, got {self.hops}")
        if self.symbols < 2:
            raise ValueError(f"hop_induction.symbols must be at least 2, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", ";", "=", *(letters(number) for number in range(self.symbols)))

    def max_tokens(self, length: int) -> int:
        return length + 3

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        symbols = _FIRST + draws.below("symbols", self.symbols, max_length)
        parts: list[Part] = [(_END, 1), (symbols, length), (_EQUALS, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        found = self._found(tokens, length)[:, -1:]
        answer = tokens.gather(1, torch.where(found > 0, found + 1, 0))  # the mark stands at 0
        tokens.scatter_(1, length[:, None] + 2, answer)
        return build_sample(tokens, length, length + 2, length + 3)

    def _found(self, tokens: Int[Tensor, "b t"], length: Int[Tensor, "b"]) -> Int[Tensor, "b {self.hops}"]:
        """Where the symbol stands that each hop finds; 0, the place of the mark, once one finds none."""
        index = torch.arange(tokens.shape[1], device=tokens.device)
        at, found = length[:, None], []
        for _ in range(self.hops):
            same = (tokens == tokens.gather(1, at)) & (index < at)
            there = index.masked_fill(~same, 0).amax(1, keepdim=True)  # from the mark, nothing is found
            at = torch.where(there > 0, there + 1, 0)
            found.append(there)
        return torch.cat(found, dim=1)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        mark, *symbols, sign = prompt
        if mark != ";" or sign != "=" or not symbols or {";", "="} & set(symbols):
            raise BadInput(f"{self.name}: a prompt is symbols between ; and =, as in ; b c a b a =")
        at = len(symbols) - 1
        for _ in range(self.hops):
            earlier = symbols[:at]
            if symbols[at] not in earlier:
                return [";"]
            at -= earlier[::-1].index(symbols[at])
        return [symbols[at]]

    def sparsity(self, length: int) -> int:
        return min(2 * self.hops, length) + 1

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        found = self._found(sample.tokens, sample.length)
        behind = torch.where(found > 0, found + 1, 0)
        places = torch.cat([sample.length[:, None], found, behind], dim=1)
        return places[:, None].expand(-1, sample.tokens.shape[1], -1)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Between a symbol and the same one before it stand other symbols; what no hop looks at is free."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        found = self._found(sample.tokens, sample.length)
        fresh = _FIRST + draws.below("free", self.symbols, len(index))
        others = _FIRST + draws.below("others", self.symbols - 1, len(index))
        looked_from, wanted_at = sample.length[:, None], sample.length[:, None]
        for there in found[:, :, None].unbind(1):
            wanted = sample.tokens.gather(1, wanted_at)
            between = (index > there) & (index < looked_from)
            fresh = torch.where(between, others + (others >= wanted).long(), fresh)
            looked_from, wanted_at = there, torch.where(there > 0, there + 1, 0)
        needed = torch.zeros_like(sample.tokens, dtype=torch.bool).scatter_(1, self.reads(sample)[:, 0], True)
        free = ~needed & (index > 0) & (index <= sample.length[:, None])
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def parse(self, text: str) -> list[int]:
        """The mark in front need not be typed."""
        return super().parse(f"; {text.strip().removeprefix(';')}")

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 2
