"""Flip-flop: remember one bit for as long as it takes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Sample, Worksheet, build_sample

_WRITE, _READ, _IGNORE, _ZERO = 1, 2, 3, 4


@register("task", "flip_flop")
@dataclass(frozen=True, kw_only=True)
class FlipFlop(Worksheet):
    """Say which bit was written last.  w 1 i 0 w 0 i 1 r 0 i 1 r  ->  0.

    `length` counts the instructions, a bit behind each: `w` writes it, after `i` it means nothing, after `r` it is what
    was written last.  The first instruction is a write and the last a read, whose bit is the answer; between them an
    instruction is ignored with probability `ignore`, and else writes or reads with equal probability.  Free bits are
    uniform.  The answer needs the last write and its bit: 2-sparse, at any distance; a read in between says it again.
    By the task's law nothing is written later.  No coupling is known.
    """

    paper = "Liu et al., NeurIPS 2023"

    ignore: float = 0.8
    """Probability that an instruction is ignored."""

    vocabulary = ("_", "w", "r", "i", "0", "1")
    ending = ("r",)

    def __post_init__(self) -> None:
        if not 0 <= self.ignore <= 1:
            raise ValueError(f"flip_flop.ignore must be in 0..1, got {self.ignore}")

    def check_length(self, length: int) -> None:
        if length < 2:
            raise BadInput(f"{self.name}: length must be at least 2, got {length}")

    def max_tokens(self, length: int) -> int:
        return 2 * length

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        instructions = self._instructions(draws, max_length, self.ignore, (1 - self.ignore) / 2)
        index = torch.arange(max_length, device=length.device)
        instructions = instructions.masked_fill(index == 0, _WRITE).masked_fill(index == length[:, None] - 1, _READ)
        return self._with_bits(length, instructions, draws.below("bits", 2, max_length))

    @staticmethod
    def _instructions(draws: Draws, columns: int, ignore: float, write: float) -> Int[Tensor, "b {columns}"]:
        """Ignored and writes with these probabilities, and else reads."""
        chance = draws.uniform("instructions", columns)
        return torch.where(chance < ignore, _IGNORE, torch.where(chance < ignore + write, _WRITE, _READ))

    @staticmethod
    def _with_bits(length: Int[Tensor, "b"], instructions: Int[Tensor, "b n"], bits: Int[Tensor, "b n"]) -> Sample:
        """Bits after a read become what was written last."""
        index = torch.arange(instructions.shape[1], device=length.device)
        written = index.masked_fill(instructions != _WRITE, 0).cummax(1).values
        bits = torch.where(instructions == _READ, bits.gather(1, written), bits)
        tokens = torch.stack([instructions, _ZERO + bits], dim=2).flatten(1)
        return build_sample(tokens, length, 2 * length - 1, 2 * length)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        text = "".join(prompt)
        if not re.fullmatch("w[01]([wri][01])*r", text):
            raise BadInput(f"{self.name}: a prompt is instructions and bits, w first and r last, as in w 1 i 0 r 1 r")
        return [text[text.rindex("w") + 1]]

    def sparsity(self, length: int) -> int:
        return 2

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        written = 2 * self._last_write(sample)
        return torch.stack([written, written + 1], dim=2).expand(-1, sample.tokens.shape[1], -1)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """All before the last write is free; behind it, nothing else is written."""
        n = sample.tokens.shape[1] // 2
        index, last = torch.arange(n, device=sample.tokens.device), self._last_write(sample)
        write = (1 - self.ignore) / 2
        before = self._instructions(draws, n, self.ignore, write)
        behind = self._instructions(draws, n, self.ignore / (1 - write), write=0.0)
        instructions = torch.where(index < last, before.masked_fill(index == 0, _WRITE), behind)
        ends = (index == last) | (index == sample.length[:, None] - 1)
        instructions = torch.where(ends, sample.tokens[:, ::2], instructions)
        bits = torch.where(index == last, sample.tokens[:, 1::2] - _ZERO, draws.below("redraw", 2, n))
        return self._with_bits(sample.length, instructions, bits)

    @staticmethod
    def _last_write(sample: Sample) -> Int[Tensor, "b 1"]:
        instructions = sample.tokens[:, ::2]
        index = torch.arange(instructions.shape[1], device=instructions.device)
        return index.masked_fill(instructions != _WRITE, 0).amax(1, keepdim=True)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return (len(tokens) + 1) // 2
