"""The square root of a binary number, bit by bit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join
from longreach.tasks.binary import draw_positive
from longreach.tasks.calculation import from_below, handed_on, turned

_END, _EQUALS, _STOP, _ZERO = 1, 2, 3, 4


@register("task", "compute_sqrt")
@dataclass(frozen=True, kw_only=True)
class ComputeSqrt(Worksheet):
    """Compute the square root of a binary number, rounded down.  1 0 0 1 0 1 ; =  ->  1 1 0 .

    `length` counts the bits of the number, n, the most significant first.  It is uniform in 1..2**n - 1, so zeros may
    stand in front.  The answer has ceil(n / 2) bits, the most significant first, with zeros in front.  The mark `;`,
    the sign `=` and the stop are ours.

    As by hand, each bit of the root goes with a pair of bits of the number, counted from the end; the first pair of an
    odd number of bits is one bit.  A bit of the root needs all bits of the number up to its pair: k grows to n.  The
    stop is read from the mark.  Coupling, ours: a pair and its bit of the root share an ID, and the mark has the next.
    """

    paper = "Deletang et al., ICLR 2023"

    vocabulary = ("_", ";", "=", ".", "0", "1")
    stop_token = _STOP
    coupling_levels = (Level("pair"),)

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=")

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return (length + 1) // 2 + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        number = draw_positive(draws, "number", length, max_length)
        half = (length + 1) // 2
        parts: list[Part] = [(_ZERO + turned(number, length), length), (_END, 1), (_EQUALS, 1)]
        parts += [(_ZERO + turned(_root(number), half), half), (_STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, length + 2, length + 3 + half)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        bits = "".join(prompt[:-2])
        if tuple(prompt[-2:]) != self.ending or not bits or not set(bits) <= {"0", "1"}:
            raise BadInput(f"{self.name}: a prompt is a binary number, as in 100101, got {' '.join(prompt)!r}")
        return list(f"{math.isqrt(int(bits, 2)):b}".zfill((len(bits) + 1) // 2))

    def sparsity(self, length: int) -> int:
        return length

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        length, pair = sample.length[:, None], self.places(sample)[:, 0]
        bits = (index < length)[:, None] & (pair[:, None] <= pair[:, :, None])
        stop = (index == sample.num_tokens[:, None] - 1)[:, :, None]
        return torch.where(stop, (index == length)[:, None], bits) & sample.answer[:, :, None]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        length, step = sample.length[:, None], self.step(sample)
        pair = (index + length % 2) // 2 + 1
        half = (length + 1) // 2
        pair = torch.where(step >= 0, step.minimum(half) + 1, pair.minimum(half + 1))
        return pair.masked_fill(step == -1, 0)[:, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 2


def _root(number: Int[Tensor, "b n"]) -> Int[Tensor, "b h"]:
    """Return the square roots, rounded down, of numbers of any size; bits from the least significant on.

    By hand: bring down the next pair of bits to the remainder, and subtract four times the root so far, plus one, where
    it fits.  Numbers stay arrays of bits, so nothing can overflow.
    """
    pairs = pad(number, (0, number.shape[1] % 2)).view(len(number), -1, 2)
    half = pairs.shape[1]
    root = number.new_zeros(len(number), half + 4)
    rest = torch.zeros_like(root)  # at most twice the root
    for pair in reversed(range(half)):
        rest = torch.cat([pairs[:, pair], rest[:, :-2]], dim=1)
        trial = pad(root[:, :-2], (2, 0))
        trial[:, 0] = 1
        difference = rest - trial
        borrow = handed_on(difference < 0, passes=difference == 0)
        fits = ~borrow[:, -1:]
        rest = torch.where(fits, (difference - from_below(borrow)) % 2, rest)
        root = torch.cat([fits.long(), root[:, :-1]], dim=1)
    return root[:, :half]
