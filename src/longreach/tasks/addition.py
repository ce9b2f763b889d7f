"""Addition of two numbers, digit by digit: the least significant first, as by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.registry import register
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Task, build_sample, join

_END, _PLUS, _EQUALS, _STOP, _ZERO, _PRIMED_ZERO = 1, 2, 3, 4, 5, 15


@register("task", "addition")
@dataclass(frozen=True, kw_only=True)
class Addition(Task):
    """Add two numbers.  ; 3 7 + 4 8 =  ->  5' 8 0 .

    `length` counts the digits of each operand, n, zeros in front included.  The answer has n + 1 digits and begins
    with the least significant; a prime says that a digit hands on a carry.  A digit needs the two above it and the
    answer digit before it: 3-sparse.  With `carry: hidden` there are no primes, and to know the carry it needs
    the two digits before too: 5-sparse.  The mark `;` stands where a digit n+1 would, so that the last digit
    depends on it and not on an absence.

    Coupling: digits of equal weight share an ID, the least significant is 1, and `;` is n + 1.  Published as in
    Cho et al. (NeurIPS 2024), the answer's digits too; aligned, the token *before* an answer digit shares its ID
    with the digits that it adds.  The layout is our reading of theirs; primes and the mark are ours.
    """

    paper = "Cho et al., NeurIPS 2024"

    carry: Literal["written", "hidden"] = "written"
    """Whether a digit that hands on a carry is written with a prime."""

    stop_token = _STOP
    coupling_levels = (Level("digit"),)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        digits = tuple("0123456789")
        primed = tuple(f"{digit}'" for digit in digits) if self.carry == "written" else ()
        return ("_", ";", "+", "=", ".", *digits, *primed)

    def max_tokens(self, length: int) -> int:
        return 3 + 2 * length + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        # column i has weight 10**i
        first, second = draws.below("first", 10, max_length), draws.below("second", 10, max_length)
        total = first + second
        index = torch.arange(max_length, device=length.device)
        # a sum of 9 hands on what comes in, so the last place that is none decides what goes out
        deciding = index.masked_fill(total == 9, -1).cummax(1).values
        carry = ((deciding >= 0) & (total.gather(1, deciding.clamp(min=0)) > 9)).long()
        digits = (total + torch.nn.functional.pad(carry[:, :-1], (1, 0))) % 10
        written = _ZERO + digits + (_PRIMED_ZERO - _ZERO) * carry * (self.carry == "written")

        ends = length[:, None] - 1
        turned = (ends - index).clamp(min=0)  # the operands are written from the most significant digit
        parts: list[Part] = [(_END, 1), (_ZERO + first.gather(1, turned), length)]
        parts += [(_PLUS, 1), (_ZERO + second.gather(1, turned), length), (_EQUALS, 1)]
        parts += [(written, length), (_ZERO + carry.gather(1, ends), 1), (_STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens=2 * length + 3, num_tokens=3 * length + 5)

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = sample.tokens[row, 1 : int(sample.prompt_tokens[row]) - 1].tolist()
        plus = prompt.index(_PLUS)
        answer, carry = [], 0
        for first, second in zip(reversed(prompt[:plus]), reversed(prompt[plus + 1 :]), strict=True):
            carry, digit = divmod(first + second - 2 * _ZERO + carry, 10)
            answer.append(digit + (_PRIMED_ZERO if carry and self.carry == "written" else _ZERO))
        return [*answer, _ZERO + carry, _STOP]

    def sparsity(self, length: int) -> int:
        return 3 if self.carry == "written" else 5

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        column = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)[None, None, :]
        row, n = column.transpose(1, 2), sample.length[:, None, None]
        digit = row - sample.prompt_tokens[:, None, None] + 1  # the last is n + 1, the stop token n + 2
        weight = self._weight(sample)[:, None, :]
        added = weight == digit  # digit n + 1 adds nothing, but reads the mark
        if self.carry == "hidden":
            added |= (weight == digit - 1) & (weight > 0) & (digit <= n + 1)
        return (added | ((column == row - 1) & (digit > 1))) & sample.answer[:, :, None]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        return replace(sample)  # every token of the prompt matters

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        n = sample.length[:, None]
        digit = index - sample.prompt_tokens[:, None] + 1  # of the answer; 0 at the equals sign
        step = digit if form == "published" else digit + 1
        ids = torch.where(digit >= 0, step, self._weight(sample))
        return ids.masked_fill(step > n + 1, 0)[:, None]

    @staticmethod
    def _weight(sample: Sample) -> Int[Tensor, "b t"]:
        """1 at the last digit of each operand, n at the first, n + 1 at the mark; 0 after both and in the answer."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        n = sample.length[:, None]
        return torch.where(index <= n + 1, n + 1 - index, (2 * n + 2 - index).clamp(min=0))

    def parse(self, text: str) -> list[int]:
        """`37 + 48` or the whole prompt `; 3 7 + 4 8 =`; the shorter number gets zeros in front."""
        body = "".join(text.split()).removeprefix(";").removesuffix("=")
        first, _, second = body.partition("+")
        if not (body.isascii() and first.isdigit() and second.isdigit()):
            raise BadInput(f"addition: a prompt is two numbers, as in 37 + 48, got {text!r}")
        n = max(len(first), len(second))
        return super().parse(" ".join([";", *first.zfill(n), "+", *second.zfill(n), "="]))

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return (len(tokens) - 3) // 2
