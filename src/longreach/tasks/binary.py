"""Sums and products of binary numbers, the least significant bit first."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Worksheet, build_sample, join
from longreach.tasks.calculation import END, EQUALS, SIGN, STOP, ZERO, settle

_WORD = 30
"""Numbers of up to so many bits are drawn as one integer."""


def draw_positive(draws: Draws, purpose: str, size: Int[Tensor, "b"], columns: int) -> Int[Tensor, "b {columns}"]:
    """Return the bits of numbers that are uniform in 1..2**size - 1, the least significant first, 0 from `size` on.

    A number of more than 30 bits is drawn bit by bit; if all bits are 0, the first becomes 1.
    """
    index = torch.arange(columns, device=size.device)
    bits = draws.below(purpose, 2, columns).masked_fill(index >= size[:, None], 0)
    bits[:, 0] |= ~bits.any(1)
    short = size[:, None] <= _WORD
    word = 1 + draws.below(f"{purpose} in one", ((1 << size.clamp(1, _WORD)) - 1)[:, None], 1)
    return torch.where(short, (word >> index.clamp(max=_WORD)) & 1, bits).masked_fill(index >= size[:, None], 0)


@dataclass(frozen=True, kw_only=True)
class BinaryCalculation(Worksheet):
    """Base of tasks on two binary numbers.  A subclass gives `sign`, `combine` and `calculate`."""

    paper = "Deletang et al., ICLR 2023"

    sign = "+"
    """The word between the numbers."""

    stop_token = STOP
    coupling_levels = (Level("weight"),)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", ";", self.sign, "=", ".", "0", "1")

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=")

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        both = length > 2
        n = torch.where(both, 1 + draws.below("split", (length - 2).clamp(min=1)[:, None], 1)[:, 0], length)
        m = torch.where(both, length - 1 - n, 0)
        first = draw_positive(draws, "first", n, max_length)
        second = draw_positive(draws, "second", m, max_length)
        # shorter prompts are one number in 0..2**length - 2: one less than a positive one
        less = torch.stack([1 - first[:, 0], pad(first, (0, 1))[:, 1] & first[:, 0]], dim=1)
        first[:, :2] = torch.where(both[:, None], first[:, :2], less[:, :max_length])
        digits, size = self.combine(first, second, length)

        parts: list[Part] = [(ZERO + first, n), (SIGN, both.long()), (ZERO + second, m), (END, 1), (EQUALS, 1)]
        tokens = join([*parts, (ZERO + digits, size), (STOP, 1)], self.max_tokens(max_length))
        return build_sample(tokens, length, length + 2, length + 3 + size)

    def combine(
        self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"], length: Int[Tensor, "b"]
    ) -> tuple[Int[Tensor, "b w"], Int[Tensor, "b"]]:
        """Return the bits of the answer, and how many of them are written."""
        raise self._missing("how to calculate")

    def calculate(self, numbers: Sequence[str]) -> str:
        """Return the bits of the answer from those of one number, which has at most 2, or of two numbers."""
        raise self._missing("how to calculate")

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        numbers = "".join(prompt[:-2]).split(self.sign)
        well_formed = len(numbers) == 2 or (len(numbers) == 1 and len(numbers[0]) < 3)
        bits_only = all(number and set(number) <= {"0", "1"} for number in numbers)
        if tuple(prompt[-2:]) != self.ending or not well_formed or not bits_only:
            raise BadInput(
                f"{self.name}: a prompt is two binary numbers, as in 001 {self.sign} 01101, got {' '.join(prompt)!r}"
            )
        return list(self.calculate(numbers))

    def needs_more(self, sample: Sample) -> Bool[Tensor, "b t"]:
        """Return which answer tokens are 0 or the stop: both depend on whether a bit further on is 1."""
        return sample.answer & (sample.tokens != ZERO + 1)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """Return IDs by weight; bits beyond both numbers have that of the sign behind the longer one."""
        step, (n, m) = self.step(sample), self._sizes(sample)
        answer = step.minimum(n.maximum(m)) + 1
        return torch.where(step >= 0, answer, (self._weight(sample) + 1).masked_fill(step == -1, 0))[:, None]

    def _weight(self, sample: Sample) -> Int[Tensor, "b t"]:
        """Return the weight of each bit of the prompt; the sign behind a number has that of one bit more."""
        n, _ = self._sizes(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return torch.where(index <= n, index, index - n - 1)

    @staticmethod
    def _sizes(sample: Sample) -> tuple[Int[Tensor, "b 1"], Int[Tensor, "b 1"]]:
        """Return how many bits the two numbers have; a prompt without a sign is one number."""
        sign = (sample.tokens == SIGN) & ~sample.answer
        n = torch.where(sign.any(1, keepdim=True), sign.long().argmax(1, keepdim=True), sample.length[:, None])
        return n, (sample.length[:, None] - 1 - n).clamp(min=0)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 2


@register("task", "binary_addition")
@dataclass(frozen=True, kw_only=True)
class BinaryAddition(BinaryCalculation):
    """Add two binary numbers, the least significant bit first.  0 0 1 + 0 1 1 0 1 ; =  ->  0 1 0 1 1 .

    `length` counts the bits of both numbers and the sign between them.  The size of the first number is uniform, and
    each number is uniform among the positive ones of its size, so its last bits may be 0.  The answer ends with its
    last 1.  As in the authors' code, a prompt of length 1 or 2 is one number in 0..2**length - 2 and its own answer.
    The stop is their termination token; zeros behind it, which pad their answer, are left out.  `;` and `=` are ours.

    A bit needs the two of its weight, the two below them and the answer bit before it: 5 tokens.  Where a number has
    ended, the sign behind it is read.  A 0 and the stop also need all bits of higher weight, for the answer ends where
    these are 0: k grows to length + 1.  Coupling, after Cho et al. (NeurIPS 2024): bits of equal weight share an ID,
    and the sign behind a number has that of one bit more.
    """

    def max_answer(self, length: int) -> int:
        return max(length, min(length + 1, 3))

    def combine(
        self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"], length: Int[Tensor, "b"]
    ) -> tuple[Int[Tensor, "b w"], Int[Tensor, "b"]]:
        digits = settle(pad(first + second, (0, 1)), 2, base=2)
        return digits, _significant(digits).clamp(min=1)

    def calculate(self, numbers: Sequence[str]) -> str:
        return f"{sum(int(number[::-1], 2) for number in numbers):b}"[::-1]

    def sparsity(self, length: int) -> int:
        return max(length + 1, 3) + (length == 3)

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        in_prompt = sample.tokens.masked_fill(sample.answer, 0) >= ZERO
        higher = in_prompt[:, None] & (self._weight(sample)[:, None] > self.step(sample)[:, :, None])
        return super().depends_on(sample) | (higher & self.needs_more(sample)[:, :, None])

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step, (n, m) = self.step(sample), self._sizes(sample)
        index = torch.arange(step.shape[1], device=step.device).expand_as(step)
        read = [weight.minimum(n) for weight in (step, step - 1)]
        # a single number has no second one beside it
        read += [torch.where(m > 0, n + 1 + weight.minimum(m), -1) for weight in (step, step - 1)]
        first_step = (step == 0)[:, :, None] & (torch.arange(5, device=step.device) % 2 == 1)
        first_step[:, :, 4] = step == 0
        return torch.stack([*read, index - 1], dim=2).masked_fill(first_step, -1)


@register("task", "binary_multiplication")
@dataclass(frozen=True, kw_only=True)
class BinaryMultiplication(BinaryCalculation):
    """Multiply two binary numbers, the least significant bit first.  0 0 1 * 0 1 1 0 1 ; =  ->  0 0 0 1 1 0 1 .

    Prompts are those of `binary_addition`, with `*`, and the answer ends with its last 1.  As in the authors' code, a
    prompt of length 1 or 2 is one number in 0..2**length - 2, and the answer has length - 1 zeros whatever it is.

    A bit needs all bits of its weight and below, and the sign behind a number that has ended.  A 0 and the stop need
    all bits and signs, for the answer ends where all further bits are 0: k grows to length + 1.  Coupling, after Cho et
    al. (NeurIPS 2024): bits of equal weight share an ID, and the sign behind a number has that of one bit more.
    Aligned, bits beyond both numbers are read from the sign behind the longer one.
    """

    sign = "*"

    def max_answer(self, length: int) -> int:
        return length

    def combine(
        self, first: Int[Tensor, "b n"], second: Int[Tensor, "b n"], length: Int[Tensor, "b"]
    ) -> tuple[Int[Tensor, "b w"], Int[Tensor, "b"]]:
        # a product of polynomials, exact: its numbers are far below 2**53
        width = first.shape[1] + 1
        columns = torch.fft.irfft(torch.fft.rfft(first.double(), width) * torch.fft.rfft(second.double(), width), width)
        digits = settle(columns.round().long(), width // 2, base=2)
        return digits, torch.where(length > 2, _significant(digits), length - 1)

    def calculate(self, numbers: Sequence[str]) -> str:
        if len(numbers) == 1:
            return "0" * (len(numbers[0]) - 1)
        first, second = (int(number[::-1], 2) for number in numbers)
        return f"{first * second:b}"[::-1]

    def sparsity(self, length: int) -> int:
        return 1 if length < 3 else length + 1

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        mark = index == sample.length[:, None]
        listed = mark | ((index < sample.length[:, None]) & (sample.length[:, None] > 2))
        low = self._weight(sample)[:, None] <= self.step(sample)[:, :, None]
        return listed[:, None] & (low | self.needs_more(sample)[:, :, None]) & sample.answer[:, :, None]

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        ids = super().coupling(sample, form)
        if form == "aligned":
            return ids
        step = self.step(sample)
        last = torch.arange(step.shape[1], device=step.device) == sample.num_tokens[:, None] - 1
        written = sample.answer & ~last & (step < sample.length[:, None] - 1)
        return torch.where(written, step + 1, ids[:, 0])[:, None]


def _significant(digits: Int[Tensor, "b w"]) -> Int[Tensor, "b"]:
    """Return how many digits there are up to the last that is not 0."""
    index = torch.arange(1, digits.shape[1] + 1, device=digits.device)
    return (index * (digits > 0)).amax(1)
