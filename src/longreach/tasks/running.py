"""Tasks that keep a state while they read: the answer is the last state, or every state on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join

_EQUALS, _END, _STOP = 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class Running(Worksheet):
    """Base of tasks with a running state.  A subclass gives `states`, `symbols`, `run` and `follow`.

    With a scratchpad every state is written:  symbols ; =  ->  states .  State i needs state i-1 and symbol i:
    2-sparse.  The mark `;` stands where a symbol n+1 would, and the stop is read from it.  Symbol i and state i share
    an ID, as in Cho et al. (NeurIPS 2024) for parity.  Without, only the last state is asked for.
    """

    scratchpad = True

    @property
    def states(self) -> tuple[str, ...]:
        """The words of the answer."""
        raise self._missing("what its states are")

    @property
    def symbols(self) -> tuple[str, ...]:
        """The words of the prompt."""
        raise self._missing("what its symbols are")

    def draw(self, draws: Draws, columns: int) -> Int[Tensor, "b {columns}"]:
        """The symbols of a prompt: each with equal probability."""
        return draws.below("symbols", len(self.symbols), columns)

    def run(self, symbols: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        """The state after each symbol."""
        raise self._missing("how to draw a sample")

    def follow(self, symbols: Sequence[str]) -> list[str]:
        """The state after each symbol, in plain Python."""
        raise self._missing("how to solve a prompt")

    @property
    def stop_token(self) -> int | None:
        return _STOP if self.scratchpad else None

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=") if self.scratchpad else ("=",)

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("step"),) if self.scratchpad else ()

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        signs = ("_", "=", ";", ".") if self.scratchpad else ("_", "=")
        return (*signs, *dict.fromkeys((*self.states, *self.symbols)))  # a word may be both

    def max_tokens(self, length: int) -> int:
        return length + len(self.ending) + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return length + 1 if self.scratchpad else 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        symbols = self.draw(draws, max_length)
        states = self._numbers[self.states[0]] + self.run(symbols)
        parts: list[Part] = [(self._numbers[self.symbols[0]] + symbols, length)]
        if self.scratchpad:
            parts += [(_END, 1), (_EQUALS, 1), (states, length), (_STOP, 1)]
        else:
            parts += [(_EQUALS, 1), (states.gather(1, length[:, None] - 1), 1)]
        prompt_tokens = length + len(self.ending)
        answer = length + 1 if self.scratchpad else 1
        return build_sample(
            join(parts, self.max_tokens(max_length)), length, prompt_tokens, num_tokens=prompt_tokens + answer
        )

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        symbols, ending = list(prompt[: -len(self.ending)]), tuple(prompt[-len(self.ending) :])
        if not symbols or ending != self.ending or not set(symbols) <= set(self.symbols):
            some = " ".join(self.symbols[:3])
            raise BadInput(f"{self.name}: a prompt is symbols ({some} ...) and {' '.join(self.ending)} behind them")
        states = self.follow(symbols)
        return states if self.scratchpad else states[-1:]

    def sparsity(self, length: int) -> int:
        return min(2, length) if self.scratchpad else length

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        """With a scratchpad: the symbol, or for the stop the mark; the state before."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step = self.step(sample)
        before = torch.where((step > 0) & (step < sample.length[:, None]), index - 1, -1)
        return torch.stack([step, before], dim=2)

    def deciding(self, sample: Sample) -> Bool[Tensor, "b t"]:
        """Without a scratchpad: the symbols that the last state depends on; all, unless a task knows better."""
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return index < sample.length[:, None]

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        if self.scratchpad:
            return super().depends_on(sample)
        return sample.answer[:, :, None] & self.deciding(sample)[:, None]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """The sign is 1, symbol i and state i are i + 1, counted from 1."""
        if not self.scratchpad:
            return super().places(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step = self.step(sample)
        return torch.where(step >= -1, step + 2, index + 2)[:, None]

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return len(tokens) - len(self.ending)
