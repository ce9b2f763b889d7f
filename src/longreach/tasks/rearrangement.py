"""Tasks whose answer is the input in another order."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, build_sample, join
from longreach.tasks.symbols import END, EQUALS, FIRST, STOP, SymbolRow


@dataclass(frozen=True, kw_only=True)
class Rearrangement(SymbolRow):
    """Base of the copying tasks.  A subclass gives `source` and `rearrange`.

    An answer token needs the input token that it repeats and no other: 1-sparse.  The mark `;` stands behind the input
    (or in front of it, where the answer goes backwards): the stop is read from it, and depends on no absence.
    """

    times = 1
    """Answer tokens for each symbol."""
    mark_in_front = False

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("place"),)

    @property
    def ending(self) -> tuple[str, ...]:
        return ("=",) if self.mark_in_front else (";", "=")

    def source(self, step: Int[Tensor, "#b t"], length: Int[Tensor, "b 1"]) -> Int[Tensor, "b t"]:
        """The place in the prompt that an answer token repeats.  What it says of other tokens does not matter."""
        raise self._missing("what it repeats")

    def rearrange(self, symbols: Sequence[str]) -> list[str]:
        """The answer, in plain Python."""
        raise self._missing("how to solve a prompt")

    def max_answer(self, length: int) -> int:
        return self.times * length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        drawn = self.draw_symbols(draws, max_length)
        step = torch.arange(self.max_answer(max_length), device=length.device)[None]
        first = int(self.mark_in_front)
        repeated = drawn.gather(1, (self.source(step, length[:, None]) - first).clamp(0, max_length - 1))
        parts: list[Part] = [(END, first), (FIRST + drawn, length), (END, 1 - first), (EQUALS, 1)]
        parts += [(FIRST + repeated, self.times * length), (STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, length + 2, (1 + self.times) * length + 3)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        symbols = [word for word in prompt if word not in (";", "=")]
        front = (";",) if self.mark_in_front else ()
        if not symbols or list(prompt) != [*front, *symbols, *self.ending]:
            raise BadInput(f"{self.name}: a prompt is symbols between {' '.join((*front, '...', *self.ending))}")
        return self.rearrange(symbols)

    def sparsity(self, length: int) -> int:
        return 1

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        return self._source(sample)[:, :, None]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """The place in the prompt, from 2; the sign is 1, just before what is read first (Cho et al., NeurIPS 2024)."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step = self.step(sample)
        return torch.where(step >= 0, self._source(sample) + 2, (index + 2).masked_fill(step == -1, 1))[:, None]

    def _source(self, sample: Sample) -> Int[Tensor, "b t"]:
        """Of every answer token; the stop is read from the mark."""
        step, length = self.step(sample), sample.length[:, None]
        mark = 0 if self.mark_in_front else length
        return torch.where(step < self.times * length, self.source(step.clamp(min=0), length), mark)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 2
