"""Addition of numbers as people write them, without zeros in front."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, build_sample, join
from longreach.tasks.calculation import (
    DIGITS,
    SIGN,
    STOP,
    ZERO,
    Calculation,
    from_below,
    handed_on,
    turned,
)


@register("task", "plain_addition")
@dataclass(frozen=True, kw_only=True)
class PlainAddition(Calculation):
    """Add two numbers without zeros in front.  ; 3 7 + 8 =  ->  5' 4 .

    `length` counts the digits of the longer number; the other has a uniform number of digits up to as many, and either
    may stand first.  The answer has no zero in front either, so whether one digit more or the stop comes last depends
    on the carry.  A digit needs the two above it and the answer digit before it: 3-sparse; 5-sparse with
    `carry: hidden`, as in `addition`.  Where a number has ended, the sign in front of it, `;` or `+`, is read instead.
    With `order: plain` the answer begins with the most significant digit, and every answer token needs all digits: k
    grows up to 2n.

    With `operand_order: reversed` operands begin with the least significant digit, 7 3 + 8 ; =  ->  5' 4 .  This is the
    layout of McLeish et al. (NeurIPS 2024).  Where a number has ended, the sign behind it is read, `+` or `;`.

    Published coupling as in `addition`, which is that of Cho et al. (NeurIPS 2024) without zeros in front; `;` has the
    ID of one digit more.  Aligned: the sign that is read where a number has ended has the ID of one digit more.  With
    `order: plain` the weight of an answer digit depends on the answer, and there is no coupling.
    """

    signs_end_numbers = True
    signs_below_digits = True

    carry: Literal["written", "hidden"] = "written"
    """Whether a digit that hands on a carry is written with a prime."""
    order: Literal["reversed", "plain"] = "reversed"
    """Whether the answer begins with the least significant digit, as by hand, or with the most significant."""

    def __post_init__(self) -> None:
        if self.order == "plain" and self.carry == "written":
            raise ValueError(f"{self.name}.order must be reversed where a carry is written: plain needs carry: hidden")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        primed = tuple(f"{digit}'" for digit in DIGITS) if self.carry == "written" else ()
        return ("_", ";", "+", "=", ".", *DIGITS, *primed)

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("digit"),) if self.order == "reversed" else ()

    def max_tokens(self, length: int) -> int:
        return 3 + 2 * length + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        other = 1 + draws.below("other", length[:, None], 1)[:, 0]
        swap = draws.below("swap", 2, 1)[:, 0] == 1
        sizes = torch.where(swap, other, length), torch.where(swap, length, other)
        first = self._number(draws, "first", sizes[0], max_length)
        second = self._number(draws, "second", sizes[1], max_length)
        total = first + second
        carry = handed_on(total > 9, passes=total == 9).long()
        written = ZERO + (total + from_below(carry)) % 10 + len(DIGITS) * carry * (self.carry == "written")
        more = carry.gather(1, length[:, None] - 1)

        parts: list[Part] = self.prompt_parts(first, second, sizes)
        answer: list[Part] = [(written, length), (ZERO + 1, more[:, 0])]
        if self.order == "plain":
            answer = [(ZERO + 1, more[:, 0]), (turned(written, length), length)]
        tokens = join([*parts, *answer, (STOP, 1)], self.max_tokens(max_length))
        prompt_tokens = sizes[0] + sizes[1] + 3
        return build_sample(tokens, length, prompt_tokens, prompt_tokens + length + more[:, 0] + 1)

    @staticmethod
    def _number(draws: Draws, name: str, size: Int[Tensor, "b"], columns: int) -> Int[Tensor, "b {columns}"]:
        """Digits, the least significant first, 0 behind the last; that is no zero, unless the number has one digit."""
        index = torch.arange(columns, device=size.device)
        digits, last = draws.below(name, 10, columns), 1 + draws.below(f"last of {name}", 9, 1)
        size = size[:, None]
        digits = torch.where((index == size - 1) & (size > 1), last, digits)
        return digits.masked_fill(index >= size, 0)

    def calculate(self, numbers: Sequence[str]) -> list[str]:
        if len(numbers) != 2 or any(len(number) > 1 and number[0] == "0" for number in numbers):
            raise self._no_prompt("+".join(numbers))
        answer, carry = [], 0
        for first, second in zip_longest(*(reversed(number) for number in numbers), fillvalue="0"):
            carry, digit = divmod(int(first) + int(second) + carry, 10)
            answer.append(f"{digit}'" if carry and self.carry == "written" else str(digit))
        answer += ["1"] * carry
        return answer if self.order == "reversed" else answer[::-1]

    def sparsity(self, length: int) -> int:
        if self.order == "plain":
            return 2 * length
        return 3 if self.carry == "written" else 5

    def needs(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        if self.order == "reversed":
            return super().needs(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        digits = (sample.tokens >= ZERO) & (index < sample.prompt_tokens[:, None])
        return digits[:, None, :] & sample.answer[:, :, None]

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step, (first, second) = self.step(sample), self._sizes(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(step)
        weights = [step] if self.carry == "written" else [step, step - 1]
        read = [(first - weight).clamp(min=0) for weight in weights]
        read += [first + 1 + (second - weight).clamp(min=0) for weight in weights]
        read = [*read, index - 1]
        not_yet = (step == 0) & (torch.arange(len(read), device=step.device)[:, None, None] % len(weights) > 0)
        not_yet[-1] = step == 0  # nothing was written before, and nothing carried
        return torch.stack(read).masked_fill(not_yet, -1).permute(1, 2, 0)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        if self.order == "plain":
            return super().places(sample)
        step, (first, second) = self.step(sample), self._sizes(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        in_prompt = torch.where(index <= first, first + 1 - index, first + second + 2 - index)
        answer = (step + 1).masked_fill(step > sample.length[:, None], 0)
        return torch.where(step >= 0, answer, in_prompt)[:, None]

    @staticmethod
    def _sizes(sample: Sample) -> tuple[Int[Tensor, "b 1"], Int[Tensor, "b 1"]]:
        """How many digits the two numbers have."""
        first = (sample.tokens == SIGN).int().argmax(1, keepdim=True) - 1
        return first, sample.prompt_tokens[:, None] - 3 - first

    def prompt_length(self, tokens: Sequence[int]) -> int:
        first = tokens.index(SIGN) - (self.operand_order == "plain")
        return max(first, len(tokens) - 3 - first)
