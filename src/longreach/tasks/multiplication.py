"""Multiplication of two numbers, at once or by partial products."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, build_sample, join
from longreach.tasks.calculation import DIGITS, EQUALS, SIGN, STOP, ZERO, Calculation, pick, settle

_PLUS, _NEXT = ZERO + len(DIGITS), ZERO + len(DIGITS) + 1


@dataclass(frozen=True)
class _Pad:
    """Where the tokens of a scratchpad stand: partial products p_0, p_1, ... and then sums c_0, c_1, ..."""

    n: Int[Tensor, "b 1"]
    """Digits of the first number."""
    m: Int[Tensor, "b 1"]
    """Digits of the second."""
    step: Int[Tensor, "b t"]

    @property
    def in_product(self) -> Bool[Tensor, "b t"]:
        return self.step < self.m * (self.n + 2)

    @property
    def number(self) -> Int[Tensor, "b t"]:
        """Of the product or sum that a token belongs to, the sign behind included."""
        return torch.where(self.in_product, self.step // (self.n + 2), self._in_sums // (self.n + self.m + 1))

    @property
    def digit(self) -> Int[Tensor, "b t"]:
        """The weight of a digit within its number; as many as it has digits at the sign behind it."""
        return torch.where(self.in_product, self.step % (self.n + 2), self._in_sums % (self.n + self.m + 1))

    @property
    def at_sign(self) -> Bool[Tensor, "b t"]:
        return self.digit == torch.where(self.in_product, self.n + 1, self.n + self.m)

    @property
    def _in_sums(self) -> Int[Tensor, "b t"]:
        return self.step - self.m * (self.n + 2)


@register("task", "multiplication")
@dataclass(frozen=True, kw_only=True)
class Multiplication(Calculation):
    """Multiply two numbers.  ; 3 7 * 1 2 =  ->  4 4 4 0 .

    `length` counts the digits of the first number, N, and `factor_digits` those of the second, M; zeros in front are
    allowed.  The answer has N + M digits and begins with the least significant.  A digit needs all digits of its
    weight and below: k grows up to N + M + 1.  The mark `;`, ours, stands where a digit N + 1 would: digits beyond both
    numbers, and the stop, are read from it.  Coupling as in Cho et al. (NeurIPS 2024): digits of equal weight share an
    ID, which falls with the weight, and the signs have the largest.

    With `scratchpad` the answer is the first number times each digit of the second, and then these added up, each one
    place further: 4 7 0 + 7 3 0 = 4 7 0 0 > 4 4 4 0 .  A digit of a product needs the two digits that it multiplies,
    and for the carry the digit before it in the first number and in the answer: 4-sparse.  A digit of a sum needs a
    digit of the product and of the sum before, the two digits before these, and the digit before it: 5-sparse.

    Coupling of the scratchpad on three levels as in Cho et al. (ICLR 2025): the place within the first number and
    within a product; the digit of the second number, which is the number of a product and of a sum; and the weight in
    products and sums.  Aligned, a step starts from the IDs of what it reads; the third level of a product stays as
    published, for the sums to find it.

    With `operand_order: reversed` both numbers begin with the least significant digit, 7 3 * 2 1 ; =  ->  4 4 4 0 .
    """

    paper = "Cho et al., NeurIPS 2024 and ICLR 2025"

    factor_digits: Span | None = Span(2, 2)
    """Digits of the second number: a number or a range such as 1..4; None for as many as the first has."""
    scratchpad: bool = False
    """Whether partial products and their sums are written."""

    sign = "*"

    def __post_init__(self) -> None:
        if self.factor_digits is not None and self.factor_digits.low < 1:
            raise ValueError(f"{self.name}.factor_digits must be at least 1, got {self.factor_digits}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", ";", "*", "=", ".", *DIGITS, *(("+", ">") if self.scratchpad else ()))

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("place"), Level("number"), Level("weight")) if self.scratchpad else (Level("weight"),)

    def max_tokens(self, length: int) -> int:
        return 3 + length + self._most(length) + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        m = self._most(length)
        return m * (length + 2) + m * (length + m + 1) if self.scratchpad else length + m + 1

    def _most(self, length: int) -> int:
        return length if self.factor_digits is None else self.factor_digits.high

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        most = self._most(max_length)
        other = length if self.factor_digits is None else self.factor_digits.draw(draws, "factor digits")
        first = self._number(draws, "first", length, max_length)
        second = self._number(draws, "second", other, most)
        width = self.max_tokens(max_length)
        parts: list[Part] = self.prompt_parts(first, second, (length, other))
        prompt_tokens = length + other + 3
        if not self.scratchpad:
            # a product of polynomials, exact: its numbers are far below 2**53
            size = max_length + most
            columns = torch.fft.irfft(
                torch.fft.rfft(first.double(), size) * torch.fft.rfft(second.double(), size), size
            )
            digits = settle(columns.round().long(), 81 * min(max_length, most))
            tokens = join([*parts, (ZERO + digits, length + other), (STOP, 1)], width)
            return build_sample(tokens, length, prompt_tokens, prompt_tokens + length + other + 1)

        products = settle(pad(first, (0, 1))[:, None] * second[:, :, None], 81)
        # rows as wide as this, read again as rows that are one shorter: each begins one place later than the one above
        shifted = pad(products, (0, most)).flatten(1)[:, : most * (max_length + most)].view(len(length), most, -1)
        sums = settle(shifted.cumsum(1), 9 * most)
        num_tokens = prompt_tokens + other * (2 * length + other + 3)
        step = torch.arange(width, device=length.device) - prompt_tokens[:, None]
        at = _Pad(length[:, None], other[:, None], step)
        answer = torch.where(at.in_product, pick(products, at.number, at.digit), pick(sums, at.number, at.digit))
        sign = torch.where(at.in_product, _PLUS, _NEXT).masked_fill(at.in_product & (at.number == at.m - 1), EQUALS)
        answer = torch.where(at.at_sign, sign, answer).masked_fill(
            step == (num_tokens - prompt_tokens)[:, None] - 1, STOP
        )
        return build_sample(torch.where(step < 0, join(parts, width), answer), length, prompt_tokens, num_tokens)

    @staticmethod
    def _number(draws: Draws, name: str, size: Int[Tensor, "b"], columns: int) -> Int[Tensor, "b {columns}"]:
        index = torch.arange(columns, device=size.device)
        return draws.below(name, 10, columns).masked_fill(index >= size[:, None], 0)

    def calculate(self, numbers: Sequence[str]) -> list[str]:
        if len(numbers) != 2:
            raise self._no_prompt("*".join(numbers))
        first, second = ([int(digit) for digit in reversed(number)] for number in numbers)
        total = [0] * (len(first) + len(second))
        products, sums = [], []
        for shift, factor in enumerate(second):
            product, carry = [], 0
            for digit in [*first, 0]:
                carry, digit = divmod(digit * factor + carry, 10)
                product.append(digit)
            carry = 0
            for place in range(shift, len(total)):
                added = product[place - shift] if place - shift < len(product) else 0
                carry, total[place] = divmod(total[place] + added + carry, 10)
            products.append(" ".join(map(str, product)))
            sums.append(" ".join(map(str, total)))
        return (f"{' + '.join(products)} = {' > '.join(sums)}" if self.scratchpad else sums[-1]).split()

    def sparsity(self, length: int) -> int:
        most = self._most(length)
        if self.scratchpad:
            return 4 if most == 1 else 5
        return length + most + 1

    def needs(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        if self.scratchpad:
            return super().needs(sample)
        n, m = self._sizes(sample)
        step, weight = self.step(sample)[:, :, None], self._weight(sample)[:, None, :]
        index = torch.arange(weight.shape[2], device=weight.device)
        digit, mark = (weight >= 0) & (index > 0), index == 0
        longer, stop = n.maximum(m)[:, :, None], (n + m)[:, :, None]
        needed = (digit & (weight <= step) & (step < stop)) | (mark & (step >= longer))
        return needed & sample.answer[:, :, None]

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        n, m = self._sizes(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        at, start = _Pad(n, m, self.step(sample)), sample.prompt_tokens[:, None]
        number, digit, sign = at.number, at.digit, at.at_sign
        none = torch.full_like(digit, -1)

        # a digit of a product; a sign stands for the mark and for what is in front of the factor: a digit more, or not
        multiplied, factor = n - digit, n + m + 1 - number
        carries = (digit > 0) & ~sign
        lower = [torch.where(carries, place, -1) for place in (multiplied + 1, index - 1)]
        of_product = [multiplied.clamp(min=0), factor - sign.long(), *lower, none]

        # a digit of a sum; where a product has no digit its sign is read, and the sum ends where the last product does
        product, place = start + number * (n + 2), digit - number
        added = torch.where((place >= 0) & (place <= n), product + place, product - 1)
        carries = (number > 0) & (place >= 1) & (place <= n) & ~sign
        lower = [torch.where(carries, place, -1) for place in (added - 1, index - 1, index - n - m - 2)]
        above = torch.where(number > 0, index - n - m - 1, start - 1)
        of_sum = [torch.where(sign, start + m * (n + 2) - 1, above), torch.where(sign, factor - 1, added), *lower]
        return torch.where(at.in_product[:, :, None], torch.stack(of_product, dim=2), torch.stack(of_sum, dim=2))

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """What a step reads, for the aligned form."""
        n, m = self._sizes(sample)
        step, weight = self.step(sample), self._weight(sample)
        index = torch.arange(step.shape[1], device=step.device)
        if not self.scratchpad:
            read = torch.where(step < n.maximum(m), step, n)  # beyond both numbers the mark
            return (n + m - torch.where(step < 0, weight, read)).masked_fill(step > n + m, 0)[:, None]
        at = _Pad(n, m, step)
        place = torch.where(at.in_product & ~at.at_sign, at.digit + 2, 0)
        number = at.number + 1 + at.at_sign.long()
        place = torch.where(step < 0, torch.where(index <= n, n + 2 - index, 0), place)
        number = torch.where(step < 0, torch.where(index > n, n + m + 2 - index, 0), number)
        in_all = step < m * (2 * n + m + 3)
        return torch.stack([place * in_all, number * in_all, torch.zeros_like(place)], dim=1)

    def couple(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        n, m = self._sizes(sample)
        step = self.step(sample)
        index = torch.arange(step.shape[1], device=step.device)
        before_stop = index < sample.num_tokens[:, None] - 1
        if not self.scratchpad:
            if form == "aligned":
                return super().couple(sample, form)
            ids = n + m - torch.where(step < 0, self._weight(sample), step)
            return (ids * (before_stop & (step < n + m)))[:, None]

        at = _Pad(n, m, step + 1)  # counted so that a sign is digit 0 of the number behind it
        written = (step >= -1) & before_stop & (step + 1 < m * (2 * n + m + 3))
        if form == "aligned":
            place, number = super().couple(sample, form)[:, :2].unbind(1)
            weight = torch.where(at.in_product, at.number + 1 + at.digit, at.digit + 2)
        else:
            given = self.places(sample).masked_fill(((step >= -1) | (index == n + 1))[:, None], 0)
            place = torch.where(written, (at.digit + 1) * at.in_product, given[:, 0])
            number = torch.where(written, at.number + 1, given[:, 1])
            weight = torch.where(at.in_product, at.number, 0) + at.digit + 1
        return torch.stack([place, number, weight * written], dim=1)

    def _weight(self, sample: Sample) -> Int[Tensor, "b t"]:
        """Of the digits in the prompt; -1 at the signs, and that of a digit more at the mark."""
        n, m = self._sizes(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return torch.where(index <= n + 1, n - index, n + m + 1 - index)

    @staticmethod
    def _sizes(sample: Sample) -> tuple[Int[Tensor, "b 1"], Int[Tensor, "b 1"]]:
        """Digits of the two numbers."""
        n = sample.length[:, None]
        return n, sample.prompt_tokens[:, None] - 3 - n

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return tokens.index(SIGN) - (self.operand_order == "plain")
