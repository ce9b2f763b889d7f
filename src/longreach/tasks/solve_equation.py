"""An equation with one unknown number, modulo a small number."""

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
from longreach.tasks.expressions import draw_expression, evaluate, most_operands

_EQUALS, _UNKNOWN, _ZERO = 1, 4, 7


@register("task", "solve_equation")
@dataclass(frozen=True, kw_only=True)
class SolveEquation(Worksheet):
    """Find the unknown number of an equation modulo 5.  ( ( x - 2 ) + ( - 4 ) ) = 3  ->  4

    `length` counts all tokens of the equation.  Its left side is an expression as in `modular_arithmetic` with
    `published`, but without `*`, so there is exactly one solution; its right side is a number.  The unknown stands for
    the first number at or behind a uniform place of the left side, or for the first of all where none follows.

    Equations have at least 3 tokens.  As in the authors' code, lengths 1 and 2 are zeros with the answer 0.  The answer
    follows the equation without a sign between them.  The unknown, all numbers, operators and signs are needed, about
    3/5 of the tokens; brackets are not counted.  No coupling is known.
    """

    paper = "Deletang et al., ICLR 2023"

    modulus: int = 5
    """Numbers are below it."""

    def __post_init__(self) -> None:
        if not 2 <= self.modulus <= 1000:
            raise ValueError(f"solve_equation.modulus must be in 2..1000, got {self.modulus}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "=", "(", ")", "x", "+", "-", *(str(number) for number in range(self.modulus)))

    @property
    def ending(self) -> tuple[str, ...]:
        return ()

    def max_tokens(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        size = (length - 2).clamp(min=0)
        left, value = draw_expression(size, draws, max(max_length - 2, 1), self.modulus, "+-", self._numbers)
        index = torch.arange(left.shape[1], device=length.device)
        numbers = left >= _ZERO
        behind = numbers & (index >= draws.below("unknown", size.clamp(min=1)[:, None], 1))
        unknown = torch.where(behind.any(1, keepdim=True), behind, numbers).long().argmax(1, keepdim=True)
        solution = left.gather(1, unknown).clamp(min=_ZERO)  # with fewer than 3 tokens there is no left side
        parts: list[Part] = [(left.scatter(1, unknown, _UNKNOWN), size), (_EQUALS, (size > 0).long())]
        parts += [(_ZERO + value, (size > 0).long()), (_ZERO, length.where(size == 0, 0)), (solution, 1)]
        return build_sample(join(parts, self.max_tokens(max_length)), length, length, length + 1)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        if len(prompt) < 3 and set(prompt) == {"0"}:
            return ["0"]
        *left, sign, right = [*prompt] if len(prompt) > 2 else ["", "", ""]
        # the unknown is added or subtracted once: two of its values show how
        at_zero, at_one = (
            evaluate([guess if word == "x" else word for word in left], self.modulus) for guess in ("0", "1")
        )
        if left.count("x") != 1 or sign != "=" or not right.isdigit() or at_zero is None or at_one is None:
            raise BadInput(f"{self.name}: a prompt is an equation such as ( x - 2 ) = 4, got {' '.join(prompt)!r}")
        return [str((int(right) - at_zero) * (at_one - at_zero) % self.modulus)]

    def sparsity(self, length: int) -> int:
        return length if length < 3 else most_operands(length - 2) + 1

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        return sample.answer[:, :, None] & ((sample.tokens >= _UNKNOWN) & ~sample.answer)[:, None]
