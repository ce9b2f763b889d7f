"""Walking round a ring: the simplest state that order does not matter to."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.tasks.base import Level, Sample
from longreach.tasks.running import Running


@register("task", "cycle_navigation")
@dataclass(frozen=True, kw_only=True)
class CycleNavigation(Running):
    """Say where moves round a ring end.  > > - < =  ->  1, or with a scratchpad  > > - < ; =  ->  1 2 2 1 .

    `length` counts the moves: one on, one back, or none, each with probability 1/3, from place 0.  The answer needs
    all of them; with a scratchpad a place needs the one before and one move: 2-sparse.  Coupling, after what Cho et
    al. (NeurIPS 2024) have for parity: with a scratchpad move i and place i share an ID; without, all moves and the
    answer share one, for the order of the moves does not matter, and the sign has the next.
    """

    paper = "Deletang et al., ICLR 2023"

    ring: int = 5
    """Places of the ring."""
    scratchpad: bool = False
    """Whether the answer is every place on the way, instead of the last alone."""

    symbols = ("-", ">", "<")

    def __post_init__(self) -> None:
        if self.ring < 2:
            raise ValueError(f"cycle_navigation.ring must be at least 2, got {self.ring}")

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(str(place) for place in range(self.ring))

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("step"),)

    def run(self, symbols: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        moves = symbols - 3 * (symbols == 2).long()  # 2 is one back
        return moves.cumsum(1) % self.ring

    def follow(self, symbols: Sequence[str]) -> list[str]:
        counts = [(symbols[: i + 1].count(">"), symbols[: i + 1].count("<")) for i in range(len(symbols))]
        return [str((on - back) % self.ring) for on, back in counts]

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        if self.scratchpad:
            return super().places(sample)
        return (1 + (self.step(sample) == -1).long())[:, None]
