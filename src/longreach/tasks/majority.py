"""Majority: the symbol that comes most often."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Part, Sample, Worksheet, build_sample, join
from longreach.tasks.names import letters

_EQUALS, _FIRST = 1, 2


@register("task", "majority")
@dataclass(frozen=True, kw_only=True)
class Majority(Worksheet):
    """Say which symbol comes most often.  a b c b =  ->  b

    `length` counts the symbols, which are uniform.  Where several come equally often, it is the one that comes first:
    our rule, by which no symbol is favoured.  The answer needs the whole input: k grows with the length, and no
    coupling is known.
    """

    paper = "Huang et al., ICLR 2025"

    symbols: int = 26
    """How many different symbols there are; 2 for binary majority."""

    def __post_init__(self) -> None:
        if self.symbols < 2:
            raise ValueError(f"{self.name}.symbols must be at least 2, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "=", *(letters(number) for number in range(self.symbols)))

    def max_tokens(self, length: int) -> int:
        return length + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        drawn = draws.below("symbols", self.symbols, max_length)
        index = torch.arange(max_length, device=length.device)
        inside = (index < length[:, None]).long()
        counts = drawn.new_zeros(len(drawn), self.symbols).scatter_add_(1, drawn, inside)
        rank = (counts.gather(1, drawn) * max_length - index) * inside  # more before fewer, and then the first
        most = drawn.gather(1, rank.argmax(1, keepdim=True))
        parts: list[Part] = [(_FIRST + drawn, length), (_EQUALS, 1), (_FIRST + most, 1)]
        return build_sample(join(parts, self.max_tokens(max_length)), length, length + 1, length + 2)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        symbols = prompt[:-1]
        if not symbols or prompt[-1] != "=" or "=" in symbols:
            raise BadInput(f"{self.name}: a prompt is symbols and then =")
        counts = Counter(symbols)
        return [max(symbols, key=lambda symbol: (counts[symbol], -symbols.index(symbol)))]

    def sparsity(self, length: int) -> int:
        return length

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        symbols = torch.arange(sample.tokens.shape[1], device=sample.tokens.device) < sample.length[:, None]
        return symbols[:, None, :] & sample.answer[:, :, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 1
