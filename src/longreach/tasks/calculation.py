"""What tasks on numbers share: sums digit by digit, which never overflow, and prompts such as `; 3 7 + 4 8 =`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.errors import BadInput
from longreach.tasks.base import Form, Part, Sample, Task, Worksheet

END, SIGN, EQUALS, STOP, ZERO = 1, 2, 3, 4, 5
"""Numbers of the tokens; digits follow on ZERO."""
DIGITS = tuple("0123456789")


def handed_on(makes: Bool[Tensor, "*b n"], passes: Bool[Tensor, "*b n"]) -> Bool[Tensor, "*b n"]:
    """Which columns hand on a carry, given which make one by themselves and which pass on one that comes in.

    The last column that does not pass decides.
    """
    index = torch.arange(makes.shape[-1], device=makes.device)
    deciding = index.masked_fill(passes, -1).cummax(-1).values
    return (deciding >= 0) & makes.gather(-1, deciding.clamp(min=0))


def from_below(carry: Tensor) -> Int[Tensor, "*b n"]:
    """What comes into each column: what the one before it hands on."""
    return pad(carry.long()[..., :-1], (1, 0))


def settle(columns: Int[Tensor, "*b n"], most: int, base: int = 10) -> Int[Tensor, "*b n"]:
    """Return the digits of the number whose columns hold numbers up to `most`; column i has weight `base`**i."""
    while most > 2 * (base - 1):  # carry whole multiples of the base, until no column can carry more than 1
        columns, most = columns % base + from_below(columns // base), base - 1 + most // base
    return (columns + from_below(handed_on(columns >= base, columns == base - 1))) % base


def turned(digits: Int[Tensor, "b n"], size: Int[Tensor, "b"]) -> Int[Tensor, "b n"]:
    """The first `size` digits backwards: the most significant in front."""
    index = torch.arange(digits.shape[1], device=digits.device)
    return digits.gather(1, (size[:, None] - 1 - index).clamp(min=0))


def pick(numbers: Int[Tensor, "b n w"], number: Int[Tensor, "b t"], digit: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
    """Digits as tokens, by the number that they belong to and their weight."""
    place = number.clamp(0, numbers.shape[1] - 1) * numbers.shape[2] + digit.clamp(0, numbers.shape[2] - 1)
    return ZERO + numbers.flatten(1).gather(1, place)


def weights(sample: Sample) -> Int[Tensor, "b t"]:
    """In `; 3 7 + 4 8 =`: 1 at the last digit of each number, n at the first, n + 1 at the mark; 0 elsewhere."""
    index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
    n = sample.length[:, None]
    return torch.where(index <= n + 1, n + 1 - index, (2 * n + 2 - index).clamp(min=0))


@dataclass(frozen=True, kw_only=True)
class Operands(Task):
    """Base of tasks on numbers that may begin with the most or with the least significant digit.

    A subclass gives `needs` and `couple` for the plain layout, `; 3 7 + 4 8 =`.  `depends_on` and `coupling` translate
    them to the reversed layout, `7 3 + 8 4 ; =`.  There the mark stands where the last number's next digit would.
    """

    operand_order: Literal["plain", "reversed"] = "plain"
    """Whether operands begin with the most significant digit or, as Abacus IDs need it, with the least significant."""

    signs_end_numbers: ClassVar[bool] = False
    """Whether the sign beside a number's most significant digit, in front or behind, stands for the number's end."""
    signs_below_digits: ClassVar[bool] = False
    """Whether the published coupling gives the signs the ID just below that of the least significant digit."""

    def needs(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        """Return `depends_on` of a sample in the plain layout."""
        raise self._missing("what its answers depend on")

    def couple(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        """Return the coupled IDs of a sample in the plain layout; with `signs_below_digits`, without those of signs."""
        raise self._missing("how its IDs are coupled")

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        if self.operand_order == "plain":
            return self.needs(sample)
        places = self._plain_places(sample)
        needs = self.needs(self._plain(sample, places))  # the answer's own places are the same in both layouts
        return needs.gather(2, places[:, None].expand_as(needs))

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        ids = self._in_layout(sample, form)
        if form == "aligned" or not self.signs_below_digits:
            return ids
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        sign, equals = sample.tokens == SIGN, index == sample.prompt_tokens[:, None] - 1
        signs = (sign & (index < sample.prompt_tokens[:, None])) | equals
        return torch.where(signs[:, None], 1, torch.where(ids > 0, ids + 1, 0))

    def hint_ids(self, sample: Sample) -> Int[Tensor, "b g t"]:
        return self._in_layout(sample, "published")

    def prompt_parts(
        self, first: Int[Tensor, "b n"], second: Int[Tensor, "b m"], sizes: tuple[Int[Tensor, "b"], Int[Tensor, "b"]]
    ) -> list[Part]:
        """Return the parts of a prompt of two numbers, whose digits are given from the least significant on."""
        n, m = sizes
        if self.operand_order == "reversed":
            return [(ZERO + first, n), (SIGN, 1), (ZERO + second, m), (END, 1), (EQUALS, 1)]
        return [(END, 1), (ZERO + turned(first, n), n), (SIGN, 1), (ZERO + turned(second, m), m), (EQUALS, 1)]

    def _in_layout(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        """Return what `couple` says of a sample in its own layout."""
        if self.operand_order == "plain":
            return self.couple(sample, form)
        places = self._plain_places(sample)
        ids = self.couple(self._plain(sample, places), form)
        return ids.gather(2, places[:, None].expand_as(ids))

    def _plain_places(self, sample: Sample) -> Int[Tensor, "b t"]:
        """Return the place of each token in the plain layout."""
        tokens, size = sample.tokens, sample.tokens.shape[1]
        index = torch.arange(size, device=tokens.device).expand_as(tokens)
        inside = index < sample.prompt_tokens[:, None] - 1
        sign = inside & ((tokens == SIGN) | (tokens == END))
        start = pad((index + 1).masked_fill(~sign, 0).cummax(1).values[:, :-1], (1, 0))
        end = index.masked_fill(~sign, size).flip(1).cummin(1).values.flip(1)  # of the number: the sign behind it
        in_front = start if self.signs_end_numbers else torch.where(tokens == END, 0, index + 1)
        places = torch.where(sign, in_front, start + end - index)
        return torch.where(inside, places, index).clamp(0, size - 1)  # clamped for rows that are no prompt of the task

    @staticmethod
    def _plain(sample: Sample, places: Int[Tensor, "b t"]) -> Sample:
        """Return the sample in the plain layout."""
        tokens = torch.zeros_like(sample.tokens).scatter(1, places, sample.tokens)
        index = torch.arange(tokens.shape[1], device=tokens.device)
        tokens = tokens.masked_fill(tokens == END, SIGN).masked_fill(index == 0, END)  # whichever signs changed places
        return replace(sample, tokens=tokens)


@dataclass(frozen=True, kw_only=True)
class Calculation(Operands, Worksheet):
    """Base of tasks whose prompt is numbers with signs between them.  A subclass gives `sign` and `calculate`."""

    sign = "+"
    """What stands between the numbers."""

    stop_token = STOP

    def calculate(self, numbers: Sequence[str]) -> list[str]:
        """Return the words of the answer, without the stop, from numbers with the most significant digit in front."""
        raise self._missing("how to calculate")

    def filled(self, numbers: Sequence[str]) -> Sequence[str]:
        """Numbers typed by a person, with the zeros in front that the task wants."""
        return numbers

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        whole = "".join(prompt)
        front, behind = (";", "=") if self.operand_order == "plain" else ("", ";=")
        if not (whole.startswith(front) and whole.endswith(behind)):
            raise self._no_prompt(whole)
        return self.calculate(self._turned(self._numbers_of(whole[len(front) : -len(behind)])))

    def needs(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        return Worksheet.depends_on(self, sample)

    def couple(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        return Worksheet.coupling(self, sample, form)

    def parse(self, text: str) -> list[int]:
        """Return the tokens of `37 + 48`, or of the whole prompt with its mark: `; 3 7 + 4 8 =` or `7 3 + 8 4 ; =`."""
        body = "".join(text.split())
        if ";" not in body:
            numbers = self._turned(self.filled(self._numbers_of(body.removesuffix("="))))
            body = self.sign.join(numbers)
            body = f";{body}=" if self.operand_order == "plain" else f"{body};="
        return super().parse(body)

    def _turned(self, numbers: Sequence[str]) -> list[str]:
        """Return numbers in the other order of digits where operands are reversed."""
        return [number if self.operand_order == "plain" else number[::-1] for number in numbers]

    def _numbers_of(self, body: str) -> list[str]:
        numbers = body.split(self.sign)
        if not all(number.isascii() and number.isdigit() for number in numbers):
            raise self._no_prompt(body)
        return numbers

    def _no_prompt(self, prompt: str) -> BadInput:
        return BadInput(f"{self.name}: a prompt is numbers, as in 37 {self.sign} 48, got {prompt!r}")
