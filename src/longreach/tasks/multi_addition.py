"""Addition of several numbers, at once or one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Sample, build_sample
from longreach.tasks.calculation import DIGITS, END, EQUALS, SIGN, STOP, ZERO, Calculation, pick, settle

_NEXT = ZERO + len(DIGITS)


@register("task", "multi_addition")
@dataclass(frozen=True, kw_only=True)
class MultiAddition(Calculation):
    """Add several numbers.  ; 0 3 7 + 0 4 8 + 0 1 1 =  ->  6 9 0 .

    `length` counts the digits of each number.  There are `operands` numbers, and zeros stand in front of them up to the
    width w of the largest sum that there could be.  The answer begins with the least significant digit.  A digit needs
    its column and, to know the carry, the column before and the digit written there: 2m + 1 tokens for m numbers up to
    10; each further factor of 10 needs one more column and digit.  The mark `;`, ours, stands where a digit w + 1
    would: the stop is read from it.

    With `scratchpad` the answer has zero and the sum after each number, 0 0 0 > 7 3 0 > 5 8 0 > 6 9 0 .  A digit needs
    its column of the next number and of the sum before, the column before, and the digit before: 5-sparse.

    Coupling as in Cho et al. (ICLR 2025).  First level: a digit of weight 10**i has i + 2, the signs have 1.  Second
    level, only with a scratchpad: number j and the sign behind it have j, and so have sum j, counted from the zero, and
    the sign in front of it.  Aligned: the token before a digit has the IDs of the number's digit that it adds.

    With `operand_order: reversed` they begin with the least significant digit: 7 3 0 + 8 4 0 + 1 1 0 ; =  ->  6 9 0 .
    Published, a `+` then has the second ID of the number behind it, as in the authors' code.
    """

    paper = "Cho et al., ICLR 2025"

    operands: Span = Span(2, 4)
    """How many numbers are added: a number, or a range such as 2..4."""
    scratchpad: bool = False
    """Whether the sum after each number is written."""

    def __post_init__(self) -> None:
        if self.operands.low < 2:
            raise ValueError(f"{self.name}.operands must be at least 2, got {self.operands}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", ";", "+", "=", ".", *DIGITS, *([">"] if self.scratchpad else []))

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("digit"), Level("operand")) if self.scratchpad else (Level("digit"),)

    def max_tokens(self, length: int) -> int:
        return 1 + self.operands.high * (_width(self.operands.high, length) + 1) + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        sums = self.operands.high + 1 if self.scratchpad else 1
        return sums * (_width(self.operands.high, length) + 1)

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        most = self.operands.high
        count = self.operands.draw(draws, "operands")
        width = self._widths(count, length)[:, None]
        columns = _width(most, max_length)
        drawn = draws.below("digits", 10, max_length * most).view(-1, max_length, most).transpose(1, 2)
        digits = pad(drawn, (0, columns - max_length))  # [b, operand, weight]
        inside = torch.arange(columns, device=length.device) < length[:, None]
        inside = inside[:, None] & (torch.arange(most, device=length.device) < count[:, None])[:, :, None]
        digits = digits.masked_fill(~inside, 0)
        if self.scratchpad:
            sums = settle(pad(digits.cumsum(1), (0, 0, 1, 0)), 9 * most)
        else:
            sums = settle(digits.sum(1, keepdim=True), 9 * most)

        index = torch.arange(self.max_tokens(max_length), device=length.device)[None]
        prompt_tokens = 1 + count * (width[:, 0] + 1)
        equals = prompt_tokens[:, None] - 1
        if self.operand_order == "plain":
            mark = torch.zeros_like(equals)
            number, digit = (index - 1) // (width + 1), width - 1 - (index - 1) % (width + 1)
        else:
            mark = equals - 1
            number, digit = index // (width + 1), index % (width + 1)
        prompt = pick(digits, number, digit).masked_fill((digit < 0) | (digit == width), SIGN)
        prompt = prompt.masked_fill(index == equals, EQUALS).masked_fill(index == mark, END)

        step = index - prompt_tokens[:, None]
        num_tokens = prompt_tokens + (count + 1 if self.scratchpad else 1) * (width[:, 0] + 1)
        answer = pick(sums, step // (width + 1), step % (width + 1)).masked_fill(step % (width + 1) == width, _NEXT)
        answer = answer.masked_fill(index == num_tokens[:, None] - 1, STOP)
        return build_sample(torch.where(step < 0, prompt, answer), length, prompt_tokens, num_tokens)

    def _widths(self, count: Int[Tensor, "b"], length: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
        """Digits of count * (10**length - 1), but without numbers that long."""
        powers = len(str(self.operands.high))
        short = length.clamp(max=powers + 1)  # beyond, the largest sum gets a digit for each digit of the numbers
        passed = [(count * (10**short - 1) >= 10 ** (short + power)).long() for power in range(powers)]
        return torch.stack([length, *passed]).sum(0)

    def filled(self, numbers: Sequence[str]) -> Sequence[str]:
        width = _width(len(numbers), max(map(len, numbers)))
        return [number.zfill(width) for number in numbers]

    def calculate(self, numbers: Sequence[str]) -> list[str]:
        width, count = len(numbers[0]), len(numbers)
        length = _length(count, width)
        zeros = "0" * (width - length)
        right = count > 1 and length and all(len(n) == width and n.startswith(zeros) for n in numbers)
        if not right:
            raise self._no_prompt("+".join(numbers))
        sums = [[0] * width]
        for number in numbers:
            total, carry = [], 0
            for before, added in zip(sums[-1], reversed(number), strict=True):
                carry, digit = divmod(before + int(added) + carry, 10)
                total.append(digit)
            sums.append(total)
        return " > ".join(" ".join(map(str, total)) for total in (sums if self.scratchpad else sums[-1:])).split()

    def sparsity(self, length: int) -> int:
        if self.scratchpad:
            return 5
        columns = _columns(self.operands.high)
        return self.operands.high * (columns + 1) + columns

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        count, width = self._sizes(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step = self.step(sample)
        done, digit = step // (width + 1), step % (width + 1)
        at_end = digit == width
        mark = torch.where(at_end, 0, -1)
        if self.scratchpad:
            # digit i of operand j stands at j * (width + 1) + width - i, and the sign behind it where digit -1 would
            operand = (done - 1).clamp(min=0) * (width + 1) + width - digit.masked_fill(at_end & (done > 0), -1)
            carried = ((operand + 1), index - 1, index - width - 2)
            lower = [place.masked_fill((digit == 0) | at_end | (done == 0), -1) for place in carried]
            total = (index - width - 1).masked_fill(at_end | (done == 0), -1)
            return torch.stack([operand, total, *lower, mark], dim=2)

        operands = torch.arange(self.operands.high, device=step.device)
        count, width, digit, at_end = (size[:, :, None] for size in (count, width, digit, at_end))
        read = [mark[:, :, None]]
        for back in range(_columns(self.operands.high) + 1):
            needed = (digit >= back) & ~at_end
            if back > 1:
                needed = needed & (count > 10 ** (back - 1))
            column = operands * (width + 1) + width - digit + back
            read.append(column.masked_fill(~needed | (operands >= count), -1))
            if back > 0:
                read.append((index - back)[:, None].masked_fill(~needed, -1))
        return torch.cat(read, dim=2)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        count, width = self._sizes(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step = self.step(sample)
        done, digit = step // (width + 1), step % (width + 1)
        beyond = done > (count if self.scratchpad else 0)
        in_prompt = torch.where(index == 0, width + 2, width + 1 - (index - 1) % (width + 1))
        levels = [torch.where(step < 0, in_prompt, digit + 2)]
        if self.scratchpad:  # sum k adds operand k; the first sum, zero, adds none
            levels.append(torch.where(step < 0, (index - 1).clamp(min=0) // (width + 1) + 1, done))
        return torch.stack([level.masked_fill(beyond, 0) for level in levels], dim=1)

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        ids = super().coupling(sample, form)
        if form == "aligned" or not self.scratchpad or self.operand_order == "plain":
            return ids
        # in the authors' code a `+` belongs to the number whose least significant digit it is next to
        return torch.stack([ids[:, 0], ids[:, 1] + (sample.tokens == SIGN)], dim=1)

    def couple(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        ids = super().couple(sample, form)
        if form == "aligned" or not self.scratchpad:
            return ids
        _, width = self._sizes(sample)
        step = self.step(sample)
        digit = ids[:, 0].masked_fill((step >= 0) & (step % (width + 1) == width) & (ids[:, 0] > 0), 1)
        number = torch.where((step >= -1) & (ids[:, 0] > 0), (step + 1) // (width + 1) + 1, ids[:, 1])
        return torch.stack([digit, number], dim=1)

    @staticmethod
    def _sizes(sample: Sample) -> tuple[Int[Tensor, "b 1"], Int[Tensor, "b 1"]]:
        """How many numbers there are, and the digits of each with the zeros in front."""
        in_prompt = torch.arange(sample.tokens.shape[1], device=sample.tokens.device) < sample.prompt_tokens[:, None]
        count = ((sample.tokens == SIGN) & in_prompt).sum(1, keepdim=True) + 1
        return count, (sample.prompt_tokens[:, None] - 1) // count - 1

    def prompt_length(self, tokens: Sequence[int]) -> int:
        count = tokens.count(SIGN) + 1
        return _length(count, (len(tokens) - 1) // count - 1)


def _width(count: int, length: int) -> int:
    """Digits of the largest sum of so many numbers with `length` digits."""
    if length > len(str(count)):  # then count * (10**length - 1) has as many digits as (count - 1) * 10**length
        return length + len(str(count - 1))
    return len(str(count * (10**length - 1)))


def _length(count: int, width: int) -> int:
    """The other way round; 0 where no length has this width."""
    return next((length for length in range(1, width + 1) if _width(count, length) == width), 0)


def _columns(count: int) -> int:
    """How many columns back the carry into a column can be worked out from: 10 to that power is at least `count`."""
    return len(str(count - 1))
