"""Pointer value retrieval: a number says where to read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Part, Sample, Worksheet, build_sample, join

_COLON, _EQUALS, _ZERO = 1, 2, 3


@register("task", "pointer_value_retrieval")
@dataclass(frozen=True, kw_only=True)
class PointerValueRetrieval(Worksheet):
    """Add up the digits that a number points at, mod 10.  0 0 0 2 : 7 1 4 9 5 =  ->  4

    `length` counts the digits behind the colon.  The pointer is the number of the first digit to read, counted from 0,
    in `pointer_digits` digits at every length; `window` digits from there are added, with `window: 2` 4 + 9 = 3.  The
    window lies anywhere inside with equal probability.  One answer token; it needs the pointer and the window:
    k is `pointer_digits` + `window`.  The task of Zhang et al., whose pointer is one digit.  No coupling is known.
    """

    paper = "Zhang et al., 2021"

    window: int = 1
    """How many digits are added."""
    pointer_digits: int = 4
    """Digits of the pointer."""

    vocabulary = ("_", ":", "=", *"0123456789")

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"pointer_value_retrieval.window must be at least 1, got {self.window}")
        if not 1 <= self.pointer_digits <= 9:
            raise ValueError(f"pointer_value_retrieval.pointer_digits must be in 1..9, got {self.pointer_digits}")

    def check_length(self, length: int) -> None:
        most = 10**self.pointer_digits + self.window - 1
        if not self.window <= length <= most:
            least = self.window
            raise BadInput(f"{self.name}: length must be in {least}..{most} (window, pointer_digits), got {length}")

    def max_tokens(self, length: int) -> int:
        return self.pointer_digits + length + 3

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        pointer = draws.below("pointer", (length[:, None] - self.window + 1).clamp(min=1), 1)
        digits = draws.below("digits", 10, max_length)
        written = torch.cat([pointer // 10**place % 10 for place in reversed(range(self.pointer_digits))], dim=1)
        inside = pointer + torch.arange(self.window, device=length.device)
        total = digits.gather(1, inside.clamp(max=max_length - 1)).sum(1, keepdim=True) % 10
        parts: list[Part] = [(_ZERO + written, self.pointer_digits), (_COLON, 1), (_ZERO + digits, length)]
        parts += [(_EQUALS, 1), (_ZERO + total, 1)]
        size = self.pointer_digits + length + 2
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, size, size + 1, {"pointer": pointer})

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """The digits outside the window again."""
        digit = torch.arange(sample.tokens.shape[1], device=sample.tokens.device) - self.pointer_digits - 1
        pointer = sample.hidden["pointer"]
        outside = (
            (digit >= 0) & (digit < sample.length[:, None]) & ((digit < pointer) | (digit >= pointer + self.window))
        )
        fresh = _ZERO + draws.below("digits", 10, sample.tokens.shape[1])
        return replace(sample, tokens=torch.where(outside, fresh, sample.tokens))

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        pointer, colon, digits = "".join(prompt).removesuffix("=").partition(":")
        first = int(pointer) if pointer.isdigit() else -1
        if len(pointer) != self.pointer_digits or not colon or not digits.isdigit() or prompt[-1] != "=":
            example = f"{'2'.zfill(self.pointer_digits)} : 7 1 4 9 ="
            raise BadInput(f"{self.name}: a prompt is a number of {self.pointer_digits} digits and digits, {example}")
        if first + self.window > len(digits):
            raise BadInput(f"{self.name}: {pointer} points beyond the {len(digits)} digits")
        return [str(sum(map(int, digits[first : first + self.window])) % 10)]

    def sparsity(self, length: int) -> int:
        return self.pointer_digits + self.window

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        device = sample.tokens.device
        written = torch.arange(self.pointer_digits, device=device).expand(len(sample.tokens), -1)
        window = sample.hidden["pointer"] + self.pointer_digits + 1 + torch.arange(self.window, device=device)
        return torch.cat([written, window], dim=1)[:, None].expand(-1, sample.tokens.shape[1], -1)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - self.pointer_digits - 2
