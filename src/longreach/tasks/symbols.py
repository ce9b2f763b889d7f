"""Base of tasks over a row of letters: how the row is drawn and written."""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Int
from torch import Tensor

from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Worksheet
from longreach.tasks.names import distinct, letters

END, EQUALS, STOP, FIRST = 1, 2, 3, 4  # tokens; the symbols follow the marks


@dataclass(frozen=True, kw_only=True)
class SymbolRow(Worksheet):
    """A row of symbols and the mark `;`, then `=` and the answer, which ends with a stop."""

    symbols: int = 26
    """How many different symbols there are."""
    distinct: bool = False
    """Whether no symbol comes twice in an input."""

    stop_token = STOP

    def __post_init__(self) -> None:
        if self.symbols < 2:
            raise ValueError(f"{self.name}.symbols must be at least 2, got {self.symbols}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", ";", "=", ".", *(letters(number) for number in range(self.symbols)))

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if self.distinct and length > self.symbols:
            raise BadInput(f"{self.name}: {length} distinct symbols are asked for, and there are {self.symbols}")

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def draw_symbols(self, draws: Draws, columns: int) -> Int[Tensor, "b {columns}"]:
        """Numbers from 0."""
        if self.distinct:
            return distinct(draws, "symbols", self.symbols, columns)
        return draws.below("symbols", self.symbols, columns)
