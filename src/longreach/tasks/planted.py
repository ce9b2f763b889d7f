"""Any k-sparse planted correlation distribution (definition 3.2 of Golowich et al., ICML 2025)."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config import Bounds
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Sample, Task, build_sample
from longreach.tasks.planted_laws import Label, PositionLaw, SumMod, TokenLaw, UniformPositions, UniformTokens

_FIRST = 1  # tokens of the law follow padding


@register("task", "planted")
@dataclass(frozen=True, kw_only=True)
class Planted(Task):
    """A label planted in k tokens.  x1 x0 x3 x0 x2 x1  with x3 and x2 planted  ->  y1.

    Positions S* ~ q_pos, tokens Z ~ q_voc planted there, every other token from mu, label g_star(Z).  `length`
    counts the tokens before the label, which is one token.  By default the planted tokens are 2 and 3, the
    others 0 and 1, and the label is the parity of the planted ones.  No coupling is known for it in general.
    """

    paper = "Golowich et al., ICML 2025"

    k: int = 2
    """How many tokens carry the label."""
    vocab_size: Annotated[int, Bounds(1, 1_000_000)] = 4
    """Tokens of the law, numbered from 0."""
    q_pos: PositionLaw = field(default_factory=UniformPositions)
    """Where the planted tokens stand: uniform, window, gaps, or a class of yours."""
    q_voc: TokenLaw = field(default_factory=lambda: UniformTokens(low=2, high=3))
    """What is planted."""
    mu: TokenLaw = field(default_factory=lambda: UniformTokens(low=0, high=1))
    """What stands everywhere else."""
    g_star: Label = field(default_factory=SumMod)
    """The label of the planted tokens."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"planted.k must be at least 1, got {self.k}")
        self.q_voc.check(self.vocab_size)
        self.mu.check(self.vocab_size)
        self.q_pos.min_length(self.k)
        self.g_star.check(self.vocab_size)
        self.g_star.num_classes(self.k)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        tokens = [f"x{number}" for number in range(self.vocab_size)]
        return ("_", *tokens, *(f"y{number}" for number in range(self.g_star.num_classes(self.k))))

    def check_length(self, length: int) -> None:
        shortest = self.q_pos.min_length(self.k)
        if length < shortest:
            raise BadInput(f"planted: length must be at least {shortest} for k={self.k}, got {length}")

    def max_tokens(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        positions = self.q_pos.sample(self.k, length, draws.child("q_pos"), max_length)
        planted = self.q_voc.sample(self.k, draws.child("q_voc"))
        tokens = torch.zeros(len(length), max_length + 1, dtype=torch.long, device=length.device)
        tokens[:, :-1] = _FIRST + self.mu.sample(max_length, draws.child("mu"))
        tokens.scatter_(1, positions, _FIRST + planted)
        label = _FIRST + self.vocab_size + self.g_star.label(planted)
        tokens.scatter_(1, length[:, None], label[:, None])
        return build_sample(tokens, length, length, length + 1, hidden={"positions": positions})

    def solve(self, sample: Sample, row: int) -> list[int]:
        """From the planted positions, which the tokens alone need not show."""
        if "positions" not in sample.hidden:
            raise BadInput("planted: the tokens alone do not show which of them are planted")
        at = sample.hidden["positions"][row].tolist()
        planted = torch.tensor([[int(sample.tokens[row, place]) - _FIRST for place in at]])
        return [_FIRST + self.vocab_size + int(self.g_star.label(planted))]

    def sparsity(self, length: int) -> int:
        return self.k

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        return sample.answer[:, :, None] & self._is_planted(sample)[:, None, :]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        fresh = _FIRST + self.mu.sample(sample.tokens.shape[1], draws)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        free = (index < sample.prompt_tokens[:, None]) & ~self._is_planted(sample)
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def parse(self, text: str) -> list[int]:
        tokens = super().parse(text)
        if max(tokens) >= _FIRST + self.vocab_size:
            raise BadInput("planted: a prompt has no label in it")
        return tokens

    @staticmethod
    def _is_planted(sample: Sample) -> Tensor:
        return torch.zeros_like(sample.answer).scatter_(1, sample.hidden["positions"], True)
