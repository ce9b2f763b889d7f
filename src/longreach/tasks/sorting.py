"""Sorting: every answer token depends on the whole input."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Part, Sample, build_sample, join
from longreach.tasks.symbols import END, EQUALS, FIRST, STOP, SymbolRow


@register("task", "sort")
@dataclass(frozen=True, kw_only=True)
class Sort(SymbolRow):
    """Write the input in alphabetical order.  c a b a ; =  ->  a a b c .

    `length` counts the symbols; aa comes behind z.  Each symbol of the answer needs the whole input: k grows with the
    length.  The stop is read from the mark `;`, which stands where one symbol more would.  No coupling is known:
    where a symbol goes depends on all others.
    """

    paper = "Huang et al., ICLR 2025"

    symbols: int = 100
    """How many different symbols there are."""

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=")

    def max_answer(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        drawn = self.draw_symbols(draws, max_length)
        inside = torch.arange(max_length, device=length.device) < length[:, None]
        ordered = drawn.masked_fill(~inside, self.symbols).sort(1).values
        parts: list[Part] = [(FIRST + drawn, length), (END, 1), (EQUALS, 1), (FIRST + ordered, length), (STOP, 1)]
        return build_sample(join(parts, self.max_tokens(max_length)), length, length + 2, 2 * length + 3)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        symbols = list(prompt[:-2])
        again = self.distinct and len(set(symbols)) < len(symbols)
        if (
            not symbols
            or tuple(prompt[-2:]) != self.ending
            or not set(symbols) <= set(self.vocabulary[FIRST:])
            or again
        ):
            raise BadInput(f"{self.name}: a prompt is {'distinct ' * self.distinct}symbols and then ; =")
        return sorted(symbols, key=lambda symbol: (len(symbol), symbol))

    def sparsity(self, length: int) -> int:
        return length

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        n = sample.length[:, None, None]
        at_stop = (self.step(sample) == sample.length[:, None])[:, :, None]
        return torch.where(at_stop, index == n, index < n) & sample.answer[:, :, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 2


@register("task", "bucket_sort")
@dataclass(frozen=True, kw_only=True)
class BucketSort(Sort):
    """Write an input of few symbols in alphabetical order.  c a b a a ; =  ->  a a a b c .

    `length` counts the symbols.  Sorting them means counting how often each comes.  Each symbol of the answer needs the
    whole input: k grows with the length.
    """

    paper = "Deletang et al., ICLR 2023"

    symbols: int = 5
