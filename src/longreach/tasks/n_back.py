"""N-back: what stood n places before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join
from longreach.tasks.names import letters

_END, _EQUALS, _STOP, _NONE, _FIRST = 1, 2, 3, 4, 5


@register("task", "n_back")
@dataclass(frozen=True, kw_only=True)
class NBack(Worksheet):
    """Repeat, for each symbol, the one n places before it.  - - c a b ; =  ->  - - c .

    `length` counts the symbols, drawn uniformly.  Where nothing stands n places before there is a `-` in front of the
    symbols, so that every answer token is read from one token, and the stop from the mark: 1-sparse.  The last n
    symbols are not needed.  After Vasylenko et al. (ICLR 2026), where the answer stands beside the symbols; the layout
    and the coupling, a token and its repetition share an ID, are ours.
    """

    paper = "Vasylenko et al., ICLR 2026"

    n: int = 2
    """How far back."""
    symbols: int = 16
    """How many different symbols there are."""

    stop_token = _STOP
    coupling_levels = (Level("place"),)

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=")

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n_back.n must be at least 1, got {self.n}")
        if self.symbols < 2:
            raise ValueError(f"n_back.symbols must be at least 2, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", ";", "=", ".", "-", *(letters(number) for number in range(self.symbols)))

    def max_tokens(self, length: int) -> int:
        return self.n + length + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        symbols = _FIRST + draws.below("symbols", self.symbols, max_length)
        shown = torch.nn.functional.pad(symbols, (self.n, 0), value=_NONE)
        parts: list[Part] = [(shown, self.n + length), (_END, 1), (_EQUALS, 1), (shown, length), (_STOP, 1)]
        prompt_tokens = self.n + length + 2
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, prompt_tokens, prompt_tokens + length + 1)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        symbols = list(prompt[self.n : -2])
        names = set(self.vocabulary[_FIRST:])
        if not symbols or not set(symbols) <= names or list(prompt) != [*["-"] * self.n, *symbols, ";", "="]:
            raise BadInput(f"{self.name}: a prompt is {self.n} times - and symbols, with ; = behind them")
        return (["-"] * self.n + symbols)[: len(symbols)]

    def sparsity(self, length: int) -> int:
        return 1

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step, length = self.step(sample), sample.length[:, None]
        return torch.where(step < length, step, length + self.n)[:, :, None]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        end = sample.length[:, None] + self.n
        free = (index >= end - self.n) & (index >= self.n) & (index < end)
        fresh = _FIRST + draws.below("redraw", self.symbols, len(index))
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """The place in the prompt, from 2; the sign is 1, just before what is read first."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step = self.step(sample)
        ids = torch.where(step >= 0, self.reads(sample)[:, :, 0] + 2, index + 2)
        return ids.masked_fill(step == -1, 1)[:, None]

    def parse(self, text: str) -> list[int]:
        """The `-` in front need not be typed."""
        return super().parse(f"{'- ' * self.n}{text.strip().lstrip('- ')}")

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 2 - self.n
