"""Parity with a scratchpad: two tokens decide each step, but they stand n tokens apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.registry import register
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Task, build_sample, join

_END, _EQUALS, _STOP, _ZERO = 1, 2, 3, 4


@register("task", "parity_scratchpad")
@dataclass(frozen=True, kw_only=True)
class ParityScratchpad(Task):
    """Running parities of the bits.  1 0 1 1 ; =  ->  1 1 0 1 .

    `length` counts the bits.  Step i needs step i-1 and bit i: 2-sparse, at distance n + 2.  The mark `;`
    stands where a bit n+1 would, so that the stop token too depends on one token and not on an absence.
    Coupling: published as in Cho et al. (NeurIPS 2024), bit i and step i share an ID; aligned, a form that
    also appears as a construction in their code, the token *before* step i shares its ID with bit i.
    """

    paper = "Cho et al., NeurIPS 2024"

    vocabulary = ("_", ";", "=", ".", "0", "1")
    stop_token = _STOP
    coupling_levels = (Level("bit"),)

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        bits = draws.below("bits", 2, max_length)
        running = bits.cumsum(1) & 1
        parts: list[Part] = [(_ZERO + bits, length), (_END, 1), (_EQUALS, 1), (_ZERO + running, length), (_STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens=length + 2, num_tokens=2 * length + 3)

    def solve(self, sample: Sample, row: int) -> list[int]:
        answer, ones = [], 0
        for token in sample.tokens[row].tolist():
            if token == _END:
                break
            ones += token == _ZERO + 1
            answer.append(_ZERO + ones % 2)
        return [*answer, _STOP]

    def sparsity(self, length: int) -> int:
        return 2

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        row, column = index[None, :, None], index[None, None, :]
        step = row - sample.prompt_tokens[:, None, None]  # 0-based; step n is the stop token
        previous = (column == row - 1) & (step > 0) & (step < sample.length[:, None, None])
        return ((column == step) | previous) & sample.answer[:, :, None]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        return replace(sample)  # every token of the prompt matters

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)[None]
        n = sample.length[:, None]
        step = index - sample.prompt_tokens[:, None] + 1  # 0 at the equals sign, 1 at the first parity
        if form == "published":  # the sign is 1, bit i and step i are i + 1
            ids = torch.where(step >= 0, step + 1, index + 2)
        else:  # bit i is i, and so is the token that step i starts from
            ids = torch.where(step >= 0, step + 1, index + 1)
        return ids.masked_fill(step > n, 0)[:, None]  # the stop token is reserved

    def parse(self, text: str) -> list[int]:
        """`1011`, `1 0 1 1` or the whole prompt `1 0 1 1 ; =`."""
        bits = text.replace(" ", "").removesuffix("=").removesuffix(";")
        tokens = super().parse(" ".join(bits))
        if min(tokens) < _ZERO:
            raise BadInput(f"parity_scratchpad: a prompt is bits, with ; = behind them or not, got {text!r}")
        return [*tokens, _END, _EQUALS]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        self.check_length(len(tokens) - 2)
        return len(tokens) - 2
