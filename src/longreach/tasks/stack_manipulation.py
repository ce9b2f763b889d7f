"""A stack, what is done to it, and what is left."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Sample
from longreach.tasks.names import letters
from longreach.tasks.stacking import FIRST, Stacking


@register("task", "stack_manipulation")
@dataclass(frozen=True, kw_only=True)
class StackManipulation(Stacking):
    """Say what is left on a stack.  ; a b b - - +b =  ->  b a .

    `length` counts the symbols that the stack starts with, from the bottom, and the actions: `+a` pushes a, `-` pops,
    and does nothing to an empty stack.  The stack starts with 1 to length - 1 symbols, each size as likely as another;
    symbols and actions are uniform.  The answer begins at the top.  An answer token needs its symbol or push and every
    action since, the stop all actions and the mark: k grows, to `length` at most.  The mark, where the bottom is, and
    the coupling, on the height of the stack, are ours.
    """

    paper = "Deletang et al., ICLR 2023"

    symbols: int = 2
    """How many different symbols there are."""

    def __post_init__(self) -> None:
        if self.symbols < 1:
            raise ValueError(f"{self.name}.symbols must be at least 1, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        names = [letters(number) for number in range(self.symbols)]
        return ("_", ";", "=", ".", *names, "-", *(f"+{name}" for name in names))

    @property
    def _pop(self) -> int:
        return FIRST + self.symbols

    def draw(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b n"]:
        start = 1 + draws.below("start", (length - 1).clamp(min=1)[:, None], 1)
        symbols = FIRST + draws.below("symbols", self.symbols, max_length)
        actions = self._pop + draws.below("actions", self.symbols + 1, max_length)
        return torch.where(torch.arange(max_length, device=length.device) < start, symbols, actions)

    def pushed(self, tokens: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        return torch.where(tokens < self._pop, tokens - FIRST, tokens - self._pop - 1)

    def spelled(self, symbol: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        return FIRST + symbol

    def is_action(self, tokens: Int[Tensor, "b t"]) -> Bool[Tensor, "b t"]:
        return tokens >= self._pop

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Other symbols where the stack starts with some that are taken away."""
        free = self._inside(sample) & ~self.is_action(sample.tokens) & ~self.depends_on(sample).any(1)
        fresh = FIRST + draws.below("redraw", self.symbols, sample.tokens.shape[1])
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def sparsity(self, length: int) -> int:
        return length

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        body = list(prompt[1:-1])
        names = set(self.vocabulary[FIRST : self._pop])
        start = next((place for place, word in enumerate(body) if word not in names), len(body))
        stack, actions = body[:start], body[start:]
        if [*prompt[:1], *prompt[-1:]] != [";", "="] or not stack or not all(word[0] in "+-" for word in actions):
            raise BadInput(f"{self.name}: a prompt is symbols and actions, as in ; a b - +a =")
        for action in actions:
            if action == "-":
                stack = stack[:-1]
            else:
                stack.append(action[1:])
        return stack[::-1]

    def parse(self, text: str) -> list[int]:
        """The mark in front need not be typed."""
        return super().parse(f"; {text.strip().removeprefix(';')}")
