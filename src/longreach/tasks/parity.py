"""Parity without steps in between: one answer from all bits."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join

_EQUALS, _ZERO = 1, 2


@register("task", "parity")
@dataclass(frozen=True, kw_only=True)
class Parity(Worksheet):
    """Say whether the ones are odd in number.  1 0 1 1 =  ->  1

    `length` counts the bits.  The answer needs all of them: k grows with the length, and nothing here is sparse.
    Coupling as in Cho et al. (NeurIPS 2024): all bits and the answer share an ID, and the sign has the next.
    """

    paper = "Cho et al., NeurIPS 2024"
    vocabulary = ("_", "=", "0", "1")
    coupling_levels = (Level("side"),)

    def max_tokens(self, length: int) -> int:
        return length + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        bits = draws.below("bits", 2, max_length)
        parity = bits.cumsum(1).gather(1, length[:, None] - 1) & 1
        parts: list[Part] = [(_ZERO + bits, length), (_EQUALS, 1), (_ZERO + parity, 1)]
        return build_sample(join(parts, self.max_tokens(max_length)), length, length + 1, length + 2)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        bits = prompt[:-1]
        if not bits or prompt[-1] != "=" or "=" in bits:
            raise BadInput(f"{self.name}: a prompt is bits and then =")
        return [str(bits.count("1") % 2)]

    def sparsity(self, length: int) -> int:
        return length

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        bits = torch.arange(sample.tokens.shape[1], device=sample.tokens.device) < sample.length[:, None]
        return bits[:, None, :] & sample.answer[:, :, None]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        return torch.where(self.step(sample) == -1, 2, 1)[:, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 1
