"""A finite automaton: any, from its table."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.seeding import Draws
from longreach.tasks.base import Sample
from longreach.tasks.names import letters
from longreach.tasks.prefix_scan import one_after_the_other, scan
from longreach.tasks.running import Running


@register("task", "automaton")
@dataclass(frozen=True, kw_only=True)
class Automaton(Running):
    """Run a finite automaton.  a a c b =  ->  2, or with a scratchpad  a a c b ; =  ->  1 2 0 2 .

    `length` counts the symbols a, b, ..., drawn uniformly; states are numbers.  The default has three states in a ring:
    `a` goes one on, `b` one back, and `c` returns to 0.  With a scratchpad state i needs state i-1 and symbol i:
    2-sparse.  Without, the last state needs the shortest end of the input that leads there from every state: k grows
    with length, less so where symbols reset the state.  With `accepting` the answer is yes or no.  Automata as in Liu
    et al. (ICLR 2023), the layout is ours; coupling, with a scratchpad, as in Cho et al. (NeurIPS 2024) for parity:
    symbol i and state i share an ID.
    """

    paper = "Liu et al., ICLR 2023"

    table: list[list[int]] = field(default_factory=lambda: [[1, 2, 0], [2, 0, 0], [0, 1, 0]])
    """For each state the next states, one for each symbol."""
    start: int = 0
    """The state before the first symbol."""
    accepting: list[int] = field(default_factory=list)
    """Accepted states: if there are any, the answer is yes or no instead of the last state."""
    scratchpad: bool = False
    """Whether the answer is every state on the way, instead of the last alone."""

    def __post_init__(self) -> None:
        count = len(self.table)
        if not count or not self.table[0] or len({len(row) for row in self.table}) > 1:
            raise ValueError(f"automaton.table must have rows of equal length, one for each state, got {self.table}")
        for name, states in (
            ("table", [state for row in self.table for state in row]),
            ("start", [self.start]),
            ("accepting", self.accepting),
        ):
            if not all(0 <= state < count for state in states):
                raise ValueError(f"automaton.{name} must name states in 0..{count - 1}, got {getattr(self, name)}")
        if self.accepting and self.scratchpad:
            raise ValueError(f"automaton.accepting must be empty with a scratchpad, got {self.accepting}")
        if unmet := set(range(count)) - self._met():
            raise ValueError(f"automaton.table must lead from start to every state, but not to {sorted(unmet)}")

    def _met(self) -> set[int]:
        """States that some input leads to."""
        met, waiting = {self.start}, [self.start]
        while waiting:
            new = set(self.table[waiting.pop()]) - met
            met |= new
            waiting += new
        return met

    @property
    def states(self) -> tuple[str, ...]:
        return ("no", "yes") if self.accepting else tuple(str(state) for state in range(len(self.table)))

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(letters(number) for number in range(len(self.table[0])))

    def run(self, symbols: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
        return self._outputs(scan(self._maps(symbols), one_after_the_other)[:, :, self.start])

    def follow(self, symbols: Sequence[str]) -> list[str]:
        state, met = self.start, []
        for symbol in symbols:
            state = self.table[state][self.symbols.index(symbol)]
            met.append(state)
        return [self.states[state in self.accepting if self.accepting else state] for state in met]

    def deciding(self, sample: Sample) -> Bool[Tensor, "b t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        inside = index < sample.length[:, None]
        drawn = (sample.tokens - self._numbers["a"]).masked_fill(~inside, 0)
        nothing = torch.arange(len(self.table), device=index.device)
        maps = torch.where(inside[:, :, None], self._maps(drawn), nothing)
        # from each place to the end: scanned from the end, where what comes later stands first
        ends = scan(maps.flip(1), lambda later, earlier: one_after_the_other(earlier, later)).flip(1)
        outputs = self._outputs(ends)
        decided = (outputs == outputs[:, :, :1]).all(2)
        return inside & ~pad(decided[:, 1:], (0, 1), value=False)  # a symbol counts while what follows does not decide

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        if self.scratchpad:
            return replace(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        free = (index < sample.length[:, None]) & ~self.deciding(sample)
        fresh = self._numbers["a"] + self.draw(draws, len(index))
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def _maps(self, symbols: Int[Tensor, "b n"]) -> Int[Tensor, "b n s"]:
        """What each symbol does to each state."""
        columns = _constant([state for column in zip(*self.table, strict=True) for state in column], symbols)
        return columns.view(len(self.table[0]), len(self.table))[symbols]

    def _outputs(self, states: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        if not self.accepting:
            return states
        return _constant([state in self.accepting for state in range(len(self.table))], states)[states]


def _constant(values: Sequence[int], like: Tensor) -> Int[Tensor, "n"]:
    """Numbers on a device without a copy from the host, for which recording a step could not wait."""
    constant = like.new_empty(len(values))
    for place, value in enumerate(values):
        constant[place].fill_(int(value))
    return constant
