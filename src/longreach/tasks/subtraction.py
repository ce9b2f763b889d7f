"""Subtraction of two numbers, digit by digit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, build_sample, join
from longreach.tasks.calculation import (
    DIGITS,
    STOP,
    ZERO,
    Calculation,
    from_below,
    handed_on,
    weights,
)


@register("task", "subtraction")
@dataclass(frozen=True, kw_only=True)
class Subtraction(Calculation):
    """Subtract the smaller number.  ; 5 3 - 2 8 =  ->  5' 2 .

    `length` counts the digits of each number, n, zeros in front included; both are uniform, and the larger stands
    first.  The answer has n digits and begins with the least significant; a prime says that a digit borrows from the
    next.  A digit needs the two above it and the answer digit before it: 3-sparse.  With `borrow: hidden` there are no
    primes, and it needs the two digits before too: 5-sparse.  The stop is read from the mark `;`.  The coupling is
    that of `addition` in both forms.  The layout and the coupling are ours.

    With `operand_order: reversed` operands begin with the least significant digit, 3 5 - 8 2 ; =  ->  5' 2 .
    """

    borrow: Literal["written", "hidden"] = "written"
    """Whether a digit that borrows from the next is written with a prime."""

    sign = "-"
    signs_below_digits = True
    coupling_levels = (Level("digit"),)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        primed = tuple(f"{digit}'" for digit in DIGITS) if self.borrow == "written" else ()
        return ("_", ";", "-", "=", ".", *DIGITS, *primed)

    def max_tokens(self, length: int) -> int:
        return 3 + 2 * length + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        one, other = draws.below("first", 10, max_length), draws.below("second", 10, max_length)
        # the first is the smaller where its last column still borrows
        swap = handed_on(one < other, passes=one == other).gather(1, length[:, None] - 1)
        first, second = torch.where(swap, other, one), torch.where(swap, one, other)
        borrow = handed_on(first < second, passes=first == second).long()
        digits = (first - second - from_below(borrow)) % 10
        written = ZERO + digits + len(DIGITS) * borrow * (self.borrow == "written")

        parts: list[Part] = [*self.prompt_parts(first, second, (length, length)), (written, length), (STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens=2 * length + 3, num_tokens=3 * length + 4)

    def filled(self, numbers: Sequence[str]) -> Sequence[str]:
        return [number.zfill(max(map(len, numbers))) for number in numbers]

    def calculate(self, numbers: Sequence[str]) -> list[str]:
        if len(numbers) != 2 or len(numbers[0]) != len(numbers[1]) or numbers[0] < numbers[1]:
            raise self._no_prompt("-".join(numbers))
        answer, borrow = [], 0
        for first, second in zip(*(reversed(number) for number in numbers), strict=True):
            borrow, digit = divmod(int(first) - int(second) + borrow, 10)  # -1 where it borrows
            answer.append(f"{digit}'" if borrow and self.borrow == "written" else str(digit))
        return answer

    def sparsity(self, length: int) -> int:
        return 5 if self.borrow == "hidden" and length > 1 else 3

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step, n = self.step(sample), sample.length[:, None]
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(step)
        above, before = [n - step, 2 * n + 1 - step], [index - 1]
        if self.borrow == "hidden":
            before += [place + 1 for place in above]
        before = [place.masked_fill((step == 0) | (step == n), -1) for place in before]
        above[1] = above[1].masked_fill(step == n, -1)  # the stop needs the mark and nothing else
        return torch.stack([*above, *before], dim=2)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        step = self.step(sample)
        return torch.where(step >= 0, step + 1, weights(sample))[:, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return (len(tokens) - 3) // 2
