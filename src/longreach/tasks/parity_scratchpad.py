"""Parity with a scratchpad: two tokens decide each step, but they stand n tokens apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join

_END, _EQUALS, _STOP, _ZERO = 1, 2, 3, 4


@register("task", "parity_scratchpad")
@dataclass(frozen=True, kw_only=True)
class ParityScratchpad(Worksheet):
    """Running parities of the bits.  1 0 1 1 ; =  ->  1 1 0 1 .

    `length` counts the bits.  Step i needs step i-1 and bit i: 2-sparse, at distance n + 2.  The mark `;`
    stands where a bit n+1 would, so that the stop token too depends on one token and not on an absence.
    Coupling: published as in Cho et al. (NeurIPS 2024), bit i and step i share an ID; aligned, a form that
    also appears as a construction in their code, the token *before* step i shares its ID with bit i.

    With `order: reversed` the parities begin with the last bit, ; 1 0 1 1 =  ->  1 0 0 1 .  The mark then stands in
    front, and the sign has the ID behind the last bit's, as in Cho et al.
    """

    paper = "Cho et al., NeurIPS 2024"

    order: Literal["forward", "reversed"] = "forward"
    """Whether the steps go through the bits from the first to the last, or backwards."""

    vocabulary = ("_", ";", "=", ".", "0", "1")
    stop_token = _STOP
    coupling_levels = (Level("bit"),)

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        bits = draws.below("bits", 2, max_length)  # in the order in which they are read
        prompt: list[Part] = [(_ZERO + bits, length), (_END, 1)]
        if self.order == "reversed":
            index = torch.arange(max_length, device=length.device)
            prompt = [(_END, 1), (_ZERO + bits.gather(1, (length[:, None] - 1 - index).clamp(min=0)), length)]
        running = bits.cumsum(1) & 1
        parts: list[Part] = [*prompt, (_EQUALS, 1), (_ZERO + running, length), (_STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens=length + 2, num_tokens=2 * length + 3)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        bits = [word for word in prompt if word in ("0", "1")]
        whole = [*bits, ";", "="] if self.order == "forward" else [";", *bits, "="]
        if not bits or list(prompt) != whole:
            raise BadInput(f"{self.name}: a prompt is bits, with ; and = around them or not, got {' '.join(prompt)!r}")
        answer, ones = [], 0
        for bit in bits if self.order == "forward" else reversed(bits):
            ones += bit == "1"
            answer.append(str(ones % 2))
        return answer

    def sparsity(self, length: int) -> int:
        return 2

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step, n = self.step(sample), sample.length[:, None]
        index = torch.arange(step.shape[1], device=step.device)
        previous = torch.where((step > 0) & (step < n), index, 0) - 1
        return torch.stack([step if self.order == "forward" else n - step, previous], dim=2)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        step, n = self.step(sample), sample.length[:, None]
        index = torch.arange(step.shape[1], device=step.device)
        if self.order == "forward":  # the sign is 1, just before the first bit
            ids = torch.where(step >= 0, step + 2, (index + 2).masked_fill(step == -1, 1))
        else:  # the mark is 1, and the sign just behind the last bit
            ids = torch.where(step >= 0, n + 1 - step, index + 1)
        return ids.masked_fill(step > n, 0)[:, None]

    def parse(self, text: str) -> list[int]:
        """`1011`, `1 0 1 1` or the whole prompt `1 0 1 1 ; =`."""
        body = text.replace(" ", "").removesuffix("=")
        body = body.removesuffix(";") + ";=" if self.order == "forward" else ";" + body.removeprefix(";") + "="
        return super().parse(" ".join(body))

    def prompt_length(self, tokens: Sequence[int]) -> int:
        self.check_length(len(tokens) - 2)
        return len(tokens) - 2
