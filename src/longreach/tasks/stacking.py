"""Tasks on a stack: what is pushed last comes out first."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join

END, EQUALS, STOP, FIRST = 1, 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class Stacking(Worksheet):
    """Base of tasks that push and pop.  A subclass gives `draw`, `pushed`, `spelled` and `is_action`.

    The answer is the stack at the end, from the top:  ; pushes and pops =  ->  what is left .  An answer token needs
    the push that it comes from and every action since; the stop needs all actions, and the mark `;`, which stands where
    the bottom of the stack is.

    Coupling, ours: what pushes something to height h, or takes it away from there, has the ID h + 1, and so has what is
    read from there; the mark is 1.  A pop that finds nothing has 1 too.
    """

    stop_token = STOP
    coupling_levels = (Level("height"),)

    def draw(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Int[Tensor, "b n"]:
        """The tokens between the mark and the sign; what stands behind the length does not matter."""
        raise self._missing("how to draw a sample")

    def pushed(self, tokens: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The number of the symbol that a token pushes, or -1 where it pops."""
        raise self._missing("what its tokens do")

    def spelled(self, symbol: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The answer token of a symbol."""
        raise self._missing("how it writes its answer")

    def is_action(self, tokens: Int[Tensor, "b t"]) -> Bool[Tensor, "b t"]:
        """Whether a token is an action, and not something that the stack starts with."""
        return torch.ones_like(tokens, dtype=torch.bool)

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        actions = self.draw(length, draws, max_length)
        inside = torch.arange(max_length, device=length.device) < length[:, None]
        _, final, source = self._heights(actions, inside)
        # from the top: what was pushed last to each height
        depth = torch.arange(self.max_answer(max_length), device=length.device)
        origin = source.gather(1, (final - depth).clamp(min=1)).clamp(min=0)
        written = self.spelled(self.pushed(actions).gather(1, origin))
        parts: list[Part] = [(END, 1), (actions, length), (EQUALS, 1), (written, final[:, 0]), (STOP, 1)]
        tokens = join(parts, self.max_tokens(max_length))
        return build_sample(tokens, length, length + 2, length + 3 + final[:, 0])

    def _heights(
        self, tokens: Int[Tensor, "b t"], inside: Bool[Tensor, "b t"]
    ) -> tuple[Int[Tensor, "b t"], Int[Tensor, "b 1"], Int[Tensor, "b s"]]:
        """The height that each token pushes to or takes from, the height at the end, and where the last push to each
        height stands (-1: nowhere)."""
        pushes = (self.pushed(tokens) >= 0) & inside
        level = torch.where(pushes, 1, -1).masked_fill(~inside, 0).cumsum(1)
        height = level - level.clamp(max=0).cummin(1).values  # a pop of nothing does nothing
        index = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        source = torch.full((len(tokens), tokens.shape[1] + 2), -1, device=tokens.device)
        source.scatter_reduce_(1, height.masked_fill(~pushes, 0), index.masked_fill(~pushes, -1), "amax")
        before = torch.nn.functional.pad(height[:, :-1], (1, 0))
        return torch.where(pushes, height, before), height[:, -1:], source

    def sparsity(self, length: int) -> int:
        return length + 1

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        inside = self._inside(sample)
        _, final, source = self._heights(sample.tokens, inside)
        origin = source.gather(1, (final - self.step(sample)).clamp(0, source.shape[1] - 1)).clamp(min=0)
        origin = origin.masked_fill(index == sample.num_tokens[:, None] - 1, 0)[:, :, None]  # the mark
        acts = (inside & self.is_action(sample.tokens))[:, None]
        return ((index == origin) | (acts & (index > origin))) & sample.answer[:, :, None]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        inside = self._inside(sample)
        height, final, _ = self._heights(sample.tokens, inside)
        step = self.step(sample)
        ids = torch.where(step >= 0, (final - step).clamp(min=0), height) + 1
        return ids.masked_fill(step == -1, 0)[:, None]

    @staticmethod
    def _inside(sample: Sample) -> Bool[Tensor, "b t"]:
        """Tokens between the mark and the sign."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return (index > 0) & (index <= sample.length[:, None])

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - 2
