"""A string written twice, with a hole in it."""

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

_EQUALS, _HOLE, _FIRST = 1, 2, 3
_ALONE = _FIRST + 1
"""The symbol that a prompt of length 1 is."""


@register("task", "missing_duplicate")
@dataclass(frozen=True, kw_only=True)
class MissingDuplicate(Worksheet):
    """Say what is missing in a string written twice.  a b b a ? b =  ->  b.

    `length` counts the symbols of both copies; where it is odd, an empty token `-` follows them.  Symbols and the place
    of the hole `?` are uniform.  As in the authors' code, the prompt of length 1 is `b`, and so is its answer.  The
    sign `=` is ours.  The answer needs the hole and its twin in the other copy: 2-sparse.  Coupling, ours: twins share
    an ID, the answer has that of the hole, and in the aligned form the sign has it.
    """

    paper = "Deletang et al., ICLR 2023"

    symbols: int = 2
    """How many different symbols there are."""

    coupling_levels = (Level("place"),)

    def __post_init__(self) -> None:
        if self.symbols < 2:
            raise ValueError(f"{self.name}.symbols must be at least 2, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "=", "?", *(letters(number) for number in range(self.symbols)), "-")

    def max_tokens(self, length: int) -> int:
        return length + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        half, alone = self._half(length), (length == 1)[:, None]
        once = _FIRST + draws.below("symbols", self.symbols, (max_length + 1) // 2)
        hole = draws.below("hole", 2 * half, 1)
        missing = once.gather(1, hole % half).masked_fill(alone, _ALONE)
        parts: list[Part] = [(once, length // 2), (once, length // 2), (_FIRST + self.symbols, length % 2)]
        tokens = join([*parts, (_EQUALS, 1), (missing, 1)], self.max_tokens(max_length))
        tokens.scatter_(1, hole.masked_fill(alone, 0), torch.where(alone, _ALONE, _HOLE))
        return build_sample(tokens, length, length + 1, length + 2)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        if list(prompt) == [self.vocabulary[_ALONE], "="]:
            return [self.vocabulary[_ALONE]]
        *both, sign = prompt
        if len(both) % 2 and both[-1] == "-":
            both.pop()
        half = len(both) // 2
        found = [pair for pair in zip(both[:half], both[half:], strict=False) if pair[0] != pair[1]]
        if sign != "=" or {"=", "-"} & {*both} or len(both) % 2 or len(found) != 1 or "?" not in found[0]:
            raise BadInput(f"{self.name}: a prompt is a string twice, with one symbol a ?, as in a b a ? =")
        return [symbol for symbol in found[0] if symbol != "?"]

    def sparsity(self, length: int) -> int:
        return min(2, length)

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        hole, half = self._hole(sample), self._half(sample.length)
        twin = ((hole + half) % (2 * half)).masked_fill(sample.length[:, None] == 1, 0)
        return torch.stack([hole, twin], dim=2).expand(-1, sample.tokens.shape[1], -1)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        hole, half = self._hole(sample), self._half(sample.length)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        fresh = _FIRST + draws.below("redraw", self.symbols, len(index)).gather(1, index % half)
        free = (index < 2 * half) & (index % half != hole % half)
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        half, step = self._half(sample.length), self.step(sample)
        ids = torch.where(step < 0, index % half, self._hole(sample) % half) + 1
        return ids.masked_fill((step < 0) & (index >= 2 * half) | (step == -1), 0)[:, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 1

    @staticmethod
    def _half(length: Int[Tensor, "b"]) -> Int[Tensor, "b 1"]:
        """Return how many symbols a copy has; 1 where there is a single symbol."""
        return (length[:, None] // 2).clamp(min=1)

    @staticmethod
    def _hole(sample: Sample) -> Int[Tensor, "b 1"]:
        return (sample.tokens == _HOLE).long().argmax(1, keepdim=True)
