"""What tasks on numbers share: sums digit by digit, which never overflow, and prompts such as `; 3 7 + 4 8 =`."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.errors import BadInput
from longreach.tasks.base import Sample
from longreach.tasks.worksheet import Worksheet

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
class Calculation(Worksheet):
    """Base of tasks whose prompt is numbers with signs between them.  A subclass gives `sign` and `calculate`."""

    sign = "+"
    """What stands between the numbers."""

    stop_token = STOP

    def calculate(self, numbers: Sequence[str]) -> list[str]:
        """The words of the answer, without the stop, from numbers as they stand in the prompt."""
        raise self._missing("how to calculate")

    def filled(self, numbers: Sequence[str]) -> Sequence[str]:
        """Numbers typed by a person, with the zeros in front that the task wants."""
        return numbers

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        return self.calculate(self._numbers_of("".join(prompt)))

    def parse(self, text: str) -> list[int]:
        """`37 + 48`, or the whole prompt `; 3 7 + 4 8 =`."""
        body = "".join(text.split())
        if not body.startswith(";"):
            numbers = self._numbers_of(f";{body.removesuffix('=')}=")
            body = f";{self.sign.join(self.filled(numbers))}="
        return super().parse(body)

    def _numbers_of(self, prompt: str) -> list[str]:
        numbers = prompt[1:-1].split(self.sign)
        if (prompt[:1], prompt[-1:]) != (";", "=") or not all(n.isascii() and n.isdigit() for n in numbers):
            raise self._no_prompt(prompt)
        return numbers

    def _no_prompt(self, prompt: str) -> BadInput:
        return BadInput(f"{self.name}: a prompt is numbers, as in 37 {self.sign} 48, got {prompt!r}")
