"""Even pairs: it seems to need every symbol, and needs two."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Part, Sample, Worksheet, build_sample, join

_EQUALS, _ODD, _EVEN, _A = 1, 2, 3, 4


@register("task", "even_pairs")
@dataclass(frozen=True, kw_only=True)
class EvenPairs(Worksheet):
    """Say whether the pairs ab and ba are even in number.  a b b a =  ->  even.

    `length` counts the symbols, drawn uniformly.  The number is even where the first and the last symbol are the same,
    so the answer needs these two: 2-sparse.  No coupling is known.
    """

    paper = "Deletang et al., ICLR 2023"

    vocabulary = ("_", "=", "odd", "even", "a", "b")

    def max_tokens(self, length: int) -> int:
        return length + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        symbols = draws.below("symbols", 2, max_length)
        even = (symbols[:, :1] == symbols.gather(1, length[:, None] - 1)).long()
        parts: list[Part] = [(_A + symbols, length), (_EQUALS, 1), (_ODD + even, 1)]
        return build_sample(join(parts, self.max_tokens(max_length)), length, length + 1, length + 2)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        *symbols, sign = prompt
        if not symbols or sign != "=" or not set(symbols) <= {"a", "b"}:
            raise BadInput(f"{self.name}: a prompt is a and b, as in a b b a =, got {' '.join(prompt)!r}")
        text = "".join(symbols)
        return ["odd" if (text.count("ab") + text.count("ba")) % 2 else "even"]

    def sparsity(self, length: int) -> int:
        return min(2, length)

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        first = torch.zeros_like(sample.tokens)
        return torch.stack([first, first + sample.length[:, None] - 1], dim=2)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        free = (index > 0) & (index < sample.length[:, None] - 1)
        fresh = _A + draws.below("redraw", 2, len(index))
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 1
