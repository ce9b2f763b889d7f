"""Copying, once or several times, with symbols that come again or do not."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.tasks.base import Level, Sample
from longreach.tasks.rearrangement import Rearrangement


@register("task", "copy")
@dataclass(frozen=True, kw_only=True)
class Copy(Rearrangement):
    """Copy the input.  c a b ; =  ->  c a b .

    `length` counts the symbols.  1-sparse.  Coupling as in Cho et al. (NeurIPS 2024): a symbol and its copy share
    an ID.  With `times: 2` the input is written twice; a second level of IDs then counts the copies.
    """

    paper = "Cho et al., NeurIPS 2024"

    times: int = 1
    """How often the input is written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.times < 1:
            raise ValueError(f"{self.name}.times must be at least 1, got {self.times}")

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        place = (Level("place"),)
        return place if self.times == 1 else (*place, Level("copy", size=self.times))

    def source(self, step: Int[Tensor, "#b t"], length: Int[Tensor, "b 1"]) -> Int[Tensor, "b t"]:
        return step % length

    def rearrange(self, symbols: Sequence[str]) -> list[str]:
        return [*symbols] * self.times

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        ids = super().places(sample)
        if self.times == 1:
            return ids
        step, length = self.step(sample), sample.length[:, None]
        copy = torch.where((step >= 0) & (step < self.times * length), step // length + 1, 0)
        return torch.cat([ids, copy[:, None]], dim=1)


@register("task", "unique_copy")
@dataclass(frozen=True, kw_only=True)
class UniqueCopy(Copy):
    """Copy an input in which no symbol comes twice.  c a b ; =  ->  c a b .

    `length` counts the symbols.  Easy without any IDs: the symbol before tells where to read, as Huang et al. explain.
    """

    paper = "Huang et al., ICLR 2025"

    symbols: int = 1000
    distinct: bool = True


@register("task", "repeat_copy")
@dataclass(frozen=True, kw_only=True)
class RepeatCopy(Copy):
    """Copy an input of two symbols, which come again and again.  a b b ; =  ->  a b b .

    `length` counts the symbols.  What stands before a symbol does not tell where to read: hard without IDs.
    """

    paper = "Huang et al., ICLR 2025"

    symbols: int = 2


@register("task", "duplicate")
@dataclass(frozen=True, kw_only=True)
class Duplicate(Copy):
    """Write the input twice.  c a b ; =  ->  c a b c a b .

    `length` counts the symbols.  Two levels of IDs: the place of a symbol, and which copy it belongs to (ours).
    """

    paper = "Deletang et al., ICLR 2023"

    symbols: int = 2
    times: int = 2
