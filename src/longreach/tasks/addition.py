"""Addition of two numbers of as many digits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, build_sample, join
from longreach.tasks.calculation import DIGITS, SIGN, STOP, ZERO, Operands, from_below, handed_on, turned, weights


@register("task", "addition")
@dataclass(frozen=True, kw_only=True)
class Addition(Operands):
    """Add two numbers.  ; 3 7 + 4 8 =  ->  5' 8 0 .

    `length` counts the digits of each operand, n, zeros in front included.  The answer has n + 1 digits and begins
    with the least significant; a prime says that a digit hands on a carry.  A digit needs the two above it and the
    answer digit before it: 3-sparse.  With `carry: hidden` there are no primes, and to know the carry it needs
    the two digits before too: 5-sparse.  The mark `;` stands where a digit n+1 would, so that the last digit
    depends on it and not on an absence.

    With `order: plain` the answer begins with the most significant digit, ; 3 7 + 4 8 =  ->  0 8 5 .  Then a digit
    needs all digits of its weight and below, for no carry has been worked out yet: k grows up to 2n + 1.

    With `operand_order: reversed` operands begin with the least significant digit, 7 3 + 8 4 ; =  ->  5' 8 0 .

    Coupling: digits of equal weight share an ID.  Published as in Cho et al. (NeurIPS 2024): the signs are 1 and move
    with the digits, the least significant digit is 2, and so are the answer's.  With `order: plain` the sign `=` is
    n + 3, just above the answer's first digit.  Aligned: the least significant digit is 1, `+` is reserved, and the
    token *before* an answer digit shares its ID with the digits that it adds.  Ours, and not in the authors' code: the
    primes, and the mark `;`, whose ID is that of a digit n + 1.  Their BOS has the reserved ID.
    """

    paper = "Cho et al., NeurIPS 2024"
    signs_below_digits = True

    carry: Literal["written", "hidden"] = "written"
    """Whether a digit that hands on a carry is written with a prime."""
    order: Literal["reversed", "plain"] = "reversed"
    """Whether the answer begins with the least significant digit, as by hand, or with the most significant."""

    stop_token = STOP
    coupling_levels = (Level("digit"),)

    def __post_init__(self) -> None:
        if self.order == "plain" and self.carry == "written":
            raise ValueError("addition.order must be reversed where a carry is written: plain needs carry: hidden")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        primed = tuple(f"{digit}'" for digit in DIGITS) if self.carry == "written" else ()
        return ("_", ";", "+", "=", ".", *DIGITS, *primed)

    def max_tokens(self, length: int) -> int:
        return 3 + 2 * length + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        # column i has weight 10**i
        first, second = draws.below("first", 10, max_length), draws.below("second", 10, max_length)
        total = first + second
        carry = handed_on(total > 9, passes=total == 9).long()
        written = ZERO + (total + from_below(carry)) % 10 + len(DIGITS) * carry * (self.carry == "written")
        last = ZERO + carry.gather(1, length[:, None] - 1)

        parts: list[Part] = self.prompt_parts(first, second, (length, length))
        parts += (
            [(written, length), (last, 1)]
            if self.order == "reversed"
            else [(last, 1), (turned(written, length), length)]
        )
        parts += [(STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens=2 * length + 3, num_tokens=3 * length + 5)

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = sample.tokens[row, : int(sample.prompt_tokens[row]) - 1].tolist()
        prompt = prompt[:0:-1] if self.operand_order == "plain" else prompt[:-1]  # from the least significant digit on
        sign = prompt.index(SIGN)
        answer, carry = [], 0
        for first, second in zip(prompt[:sign], prompt[sign + 1 :], strict=True):
            carry, digit = divmod(first + second - 2 * ZERO + carry, 10)
            answer.append(ZERO + digit + (len(DIGITS) if carry and self.carry == "written" else 0))
        answer.append(ZERO + carry)
        return [*(answer if self.order == "reversed" else reversed(answer)), STOP]

    def sparsity(self, length: int) -> int:
        if self.order == "plain":
            return 2 * length + 1
        return 3 if self.carry == "written" else 5

    def needs(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        column = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)[None, None, :]
        row, n = column.transpose(1, 2), sample.length[:, None, None]
        digit = row - sample.prompt_tokens[:, None, None] + 1  # the last is n + 1, the stop token n + 2
        weight = weights(sample)[:, None, :]
        if self.order == "plain":
            in_prompt = column < sample.prompt_tokens[:, None, None]
            digit = n + 2 - digit  # the stop, 0, stands where the numbers end: at the signs
            needed = torch.where(digit > 0, (weight > 0) & (weight <= digit), weight == 0)
            return needed & in_prompt & sample.answer[:, :, None]
        added = weight == digit  # digit n + 1 adds nothing, but reads the mark
        if self.carry == "hidden":
            added |= (weight == digit - 1) & (weight > 0) & (digit <= n + 1)
        return (added | ((column == row - 1) & (digit > 1))) & sample.answer[:, :, None]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        return replace(sample)  # every token of the prompt matters

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        ids = super().coupling(sample, form)
        if form == "aligned" or self.order == "reversed":
            return ids
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        equals = index == sample.prompt_tokens[:, None] - 1
        return torch.where(equals, sample.length[:, None] + 3, ids[:, 0])[:, None]

    def couple(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        n = sample.length[:, None]
        digit = index - sample.prompt_tokens[:, None] + 1  # of the answer; 0 at the equals sign
        step = digit if form == "published" else digit + 1
        weight = step if self.order == "reversed" else n + 2 - step
        ids = torch.where(digit >= 0, weight, weights(sample))
        return ids.masked_fill((step < 1) & (digit >= 0) | (step > n + 1), 0)[:, None]

    def parse(self, text: str) -> list[int]:
        """Return the tokens of `37 + 48` or of the whole prompt with its mark; the shorter number is filled with zeros.

        With `operand_order: reversed` the whole prompt is `7 3 + 8 4 ; =`, and `37 + 48` is turned round.
        """
        body = "".join(text.split()).removesuffix("=")
        plain = self.operand_order == "plain"
        turned_round = not plain and body.endswith(";")
        body = body.removeprefix(";") if plain else body.removesuffix(";")
        first, _, second = body.partition("+")
        if not (body.isascii() and first.isdigit() and second.isdigit()):
            raise BadInput(f"addition: a prompt is two numbers, as in 37 + 48, got {text!r}")
        n = max(len(first), len(second))
        numbers = [number[::-1] if turned_round else number for number in (first, second)]
        numbers = [number.zfill(n)[:: 1 if plain else -1] for number in numbers]
        words = [*numbers[0], "+", *numbers[1]]
        return super().parse(" ".join([";", *words, "="] if plain else [*words, ";", "="]))

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return (len(tokens) - 3) // 2
