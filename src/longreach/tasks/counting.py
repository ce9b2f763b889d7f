"""Counting: up from one number to another, and how often a symbol comes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Part, Sample, Worksheet, build_sample, join
from longreach.tasks.names import LAST, letters


@register("task", "counting")
@dataclass(frozen=True, kw_only=True)
class Counting(Worksheet):
    """Count from one number up to another.  5 8 =  ->  5 6 7 8 .

    `length` counts the numbers of the answer; where it begins is uniform.  A number is one token.  The first needs the
    start, each other the number before it and the end, which says whether to go on: 2-sparse.  No coupling: what is
    read stands in one place.
    """

    paper = "Zhou et al., ICLR 2024"

    numbers: int = 1000
    """How many numbers there are; they begin with 0."""

    stop_token = 2

    def __post_init__(self) -> None:
        if self.numbers < 2:
            raise ValueError(f"{self.name}.numbers must be at least 2, got {self.numbers}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "=", ".", *map(str, range(self.numbers)))

    def check_length(self, length: int) -> None:
        if not 1 <= length <= self.numbers:
            raise BadInput(f"{self.name}: length must be in 1..{self.numbers} (numbers), got {length}")

    def max_tokens(self, length: int) -> int:
        return 3 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        zero = self.stop_token + 1
        start = zero + draws.below("start", (self.numbers + 1 - length)[:, None], 1)
        counted = start + torch.arange(max_length, device=length.device)
        parts: list[Part] = [(start, 1), (start + length[:, None] - 1, 1), (1, 1), (counted, length)]
        tokens = join([*parts, (self.stop_token, 1)], self.max_tokens(max_length))
        return build_sample(tokens, length, torch.full_like(length, 3), length + 4)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        if (
            len(prompt) != 3
            or prompt[2] != "="
            or not (prompt[0] + prompt[1]).isdigit()
            or int(prompt[0]) > int(prompt[1])
        ):
            raise BadInput(f"{self.name}: a prompt is two numbers, the second not the smaller, as in 5 8 =")
        return [str(number) for number in range(int(prompt[0]), int(prompt[1]) + 1)]

    def sparsity(self, length: int) -> int:
        return 2

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step = self.step(sample)
        before, end = torch.where(step > 0, step + 2, 0), torch.where(step > 0, 1, -1)
        return torch.stack([before, end], dim=2)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return tokens[1] - tokens[0] + 1


@register("task", "count")
@dataclass(frozen=True, kw_only=True)
class Count(Worksheet):
    """Count how often a symbol comes.  a b a c ? a =  ->  2 .

    `length` counts the symbols.  How often the symbol comes is uniform from never to always, and so are the places; the
    others are uniform.  The answer is written in digits, the most significant first.  Every token of it needs the whole
    prompt: k grows with the length.  The task is ours, and no coupling is known.
    """

    symbols: int = 26
    """How many different symbols there are."""

    stop_token = 3

    def __post_init__(self) -> None:
        if self.symbols < 2:
            raise ValueError(f"{self.name}.symbols must be at least 2, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "?", "=", ".", *"0123456789", *(letters(number) for number in range(self.symbols)))

    def max_tokens(self, length: int) -> int:
        return length + 3 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return len(str(length)) + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        zero = self.stop_token + 1
        first = zero + 10
        times = draws.below("times", length[:, None] + 1, 1)
        query = draws.below("query", self.symbols, 1)
        others = draws.below("others", self.symbols - 1, max_length)
        others = others + (others >= query)
        inside = torch.arange(max_length, device=length.device) < length[:, None]
        keys = draws.bits("places", max_length).masked_fill(~inside, LAST)
        largest = keys.sort(1).values.gather(1, (times - 1).clamp(min=0))
        symbols = first + torch.where((keys <= largest) & (times > 0), query, others)

        powers = [10**power for power in reversed(range(len(str(max_length))))]
        digits = torch.cat([times // power % 10 for power in powers], dim=1)
        size = torch.cat([(times >= power).long() for power in powers], dim=1).sum(1).clamp(min=1)
        place = torch.arange(len(powers), device=length.device) + len(powers) - size[:, None]
        written = zero + digits.gather(1, place.clamp(max=len(powers) - 1))
        parts: list[Part] = [
            (symbols, length),
            (1, 1),
            (first + query, 1),
            (2, 1),
            (written, size),
            (self.stop_token, 1),
        ]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, length + 3, length + 4 + size)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        *symbols, mark, query, equals = prompt if len(prompt) > 3 else [""] * 3
        if not symbols or (mark, equals) != ("?", "=") or not all(word.isalpha() for word in (*symbols, query)):
            raise BadInput(f"{self.name}: a prompt is symbols, ? and a symbol, as in a b a ? a =")
        return list(str(symbols.count(query)))

    def sparsity(self, length: int) -> int:
        return length + 1

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        n = sample.length[:, None]
        return ((index < n) | (index == n + 1))[:, None, :] & sample.answer[:, :, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 3
