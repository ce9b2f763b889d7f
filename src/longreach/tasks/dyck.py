"""Brackets: close what is open."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.stacking import FIRST, Stacking

_OPENING, _CLOSING = "([{<", ")]}>"


@register("task", "dyck")
@dataclass(frozen=True, kw_only=True)
class Dyck(Stacking):
    """Close all open brackets.  ; ( [ ] { =  ->  } ) .

    `length` counts the brackets of the prompt, the beginning of a Dyck word.  Each opens or closes with equal
    probability, but opens where nothing is open and closes at `max_depth`; kinds are uniform.  Without a bound, about
    sqrt(length) are left open; where none is, the answer is the stop alone.  An answer token needs the bracket that it
    closes and everything since, the stop every bracket and the mark `;` in front, so k grows.  From BIG-bench; the
    mark, the law and the coupling, on the depth, are ours.
    """

    paper = "Srivastava et al., TMLR 2023"

    kinds: int = 2
    """Kinds of brackets: 1 to 4 of ( [ { <."""
    max_depth: int = 0
    """Brackets that can be open at once; 0 for any number."""

    def __post_init__(self) -> None:
        if not 1 <= self.kinds <= len(_OPENING):
            raise ValueError(f"dyck.kinds must be in 1..{len(_OPENING)}, got {self.kinds}")
        if self.max_depth < 0:
            raise ValueError(f"dyck.max_depth must be at least 0, got {self.max_depth}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", ";", "=", ".", *_OPENING[: self.kinds], *_CLOSING[: self.kinds])

    def max_answer(self, length: int) -> int:
        return min(length, self.max_depth or length) + 1

    def draw(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b n"]:
        # a walk on all whole numbers, folded at 0 and at the bound: it turns there, and goes either way elsewhere
        walk = (2 * draws.below("steps", 2, max_length) - 1).cumsum(1)
        bound = self.max_depth
        depth = bound - (walk % (2 * bound) - bound).abs() if bound else walk.abs()
        before = torch.nn.functional.pad(depth[:, :-1], (1, 0))
        opens = depth > before
        # at each depth opening and closing alternate, so a bracket closes the one before it there
        order = depth.maximum(before).argsort(dim=1, stable=True)
        kinds = draws.below("kinds", self.kinds, max_length).gather(1, order)
        kinds = torch.where(opens.gather(1, order), kinds, kinds.roll(1, dims=1))
        kinds = torch.empty_like(kinds).scatter_(1, order, kinds)
        return FIRST + kinds + self.kinds * (~opens).long()

    def pushed(self, tokens: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        return torch.where(tokens < FIRST + self.kinds, tokens - FIRST, -1)

    def spelled(self, symbol: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        return FIRST + self.kinds + symbol

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        """Take out pairs with nothing between them until none is left."""
        text = "".join(prompt[1:-1])
        rest = self._reduced(text)
        depths = accumulate(1 if bracket in _OPENING else -1 for bracket in text)
        fits = not self.max_depth or max(depths, default=0) <= self.max_depth
        if [*prompt[:1], *prompt[-1:]] != [";", "="] or not text or not set(rest) <= set(_OPENING) or not fits:
            bound = f", at most {self.max_depth} deep" if self.max_depth else ""
            raise BadInput(f"{self.name}: a prompt is brackets, closed in the right order{bound}, as in ; ( [ ] =")
        return [_CLOSING[_OPENING.index(bracket)] for bracket in reversed(rest)]

    @staticmethod
    def _reduced(text: str) -> str:
        before = ""
        while text != before:
            before = text
            for pair in ("()", "[]", "{}", "<>"):
                text = text.replace(pair, "")
        return text

    def parse(self, text: str) -> list[int]:
        """The mark in front need not be typed."""
        return super().parse(f"; {text.strip().removeprefix(';')}")
