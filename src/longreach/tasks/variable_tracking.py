"""Variable tracking: chains of assignments in much filler, and which variables have a value."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, build_sample, join
from longreach.tasks.names import LAST, distinct, letters, renew
from longreach.tasks.retrieval import Retrieval, hide, numbered, scatter

_QUERY, _ASSIGN, _END, _EQUALS, _STOP, _FILLER = 1, 2, 3, 4, 5, 6
_SIZE = 3
"""Tokens of a statement."""


@register("task", "variable_tracking")
@dataclass(frozen=True, kw_only=True)
class VariableTracking(Retrieval):
    """Say which variables have a value.  b A := 7 c a B := A ; := B a ? 7 =  ->  A B .

    `length` counts the filler tokens, the small letters.  A chain begins with `A := 7`; each of its `hops` further
    variables stands for the one before, and `; := B`, ours, says that nothing stands for B: the stop is read from it.
    The chains have different variables and values, and are mixed, each in its own order; a statement stands after any
    number of filler tokens with equal probability.  The answer has the variables in the order of the prompt.  Each
    needs the one before (the first: the value asked for), the same name on the right of its statement, and itself:
    3-sparse.  After the variable tracking of RULER (Hsieh et al.), in tokens instead of text.

    Coupling on two levels (ours): the statement, counted in the order of the prompt, and the token within it; the rest
    is reserved.  An answer token has the IDs of what it is read from.  Aligned, a variable so has the statement that
    comes to stand for it.  Which one that is depends on the names, so no rule gives it.
    """

    paper = "Hsieh et al., COLM 2024"

    chains: Span = Span(2, 2)
    """Chains: a number, or a range such as 1..4."""
    hops: Span = Span(3, 3)
    """Variables of a chain that stand for another one: a number, or a range such as 1..8."""
    num_names: int = 100
    """How many different variables there are."""
    num_values: int = 100
    """How many different values there are."""
    symbols: int = 26
    """How many different filler tokens there are."""

    stop_token = _STOP
    coupling_levels = (Level("statement"), Level("token in statement", size=_SIZE))
    coupling_by_rule = False

    def __post_init__(self) -> None:
        if self.chains.low < 1:
            raise ValueError(f"variable_tracking.chains must be at least 1, got {self.chains}")
        if self.hops.low < 0:
            raise ValueError(f"variable_tracking.hops must be at least 0, got {self.hops}")
        if self.symbols < 1:
            raise ValueError(f"variable_tracking.symbols must be at least 1, got {self.symbols}")
        needed = self.chains.high * (self.hops.high + 1)
        if self.num_names < needed:
            raise ValueError(f"variable_tracking.num_names must be at least {needed}, got {self.num_names}")
        if self.num_values < self.chains.high:
            least = self.chains.high
            raise ValueError(f"variable_tracking.num_values must be at least {least} (chains), got {self.num_values}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        filler = (letters(number) for number in range(self.symbols))
        values = map(str, range(self.num_values))
        names = (letters(number).upper() for number in range(self.num_names))
        return ("_", "?", ":=", ";", "=", ".", *filler, *values, *names)

    def max_tokens(self, length: int) -> int:
        return length + _SIZE * self.chains.high * self._links + 3 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return self.hops.high + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        most, links = self.chains.high, self._links
        chains, hops = self.chains.draw(draws, "chains"), self.hops.draw(draws, "hops")
        # which statement of which chain comes when: each chain keeps its order, and what a row has not comes last
        chain, link = (torch.arange(size, device=length.device) for size in (most, links))
        there = (chain[:, None] < chains[:, None, None]) & (link < hops[:, None, None] + 2)
        times = draws.bits("order", most * links).view(-1, most, links).masked_fill(~there, LAST)
        order = times.sort(dim=2).values.flatten(1).argsort(dim=1)
        facts = {
            "chains": chains,
            "hops": hops,
            "names": distinct(draws, "names", self.num_names, most * (links - 1)),
            "values": distinct(draws, "values", self.num_values, most),
            "order": order,
            "start": scatter(draws, "places", length, chains * (hops + 2), most * links, _SIZE),
        }
        filler = draws.below("filler", self.symbols, max_length)
        return self._assemble(length, facts, filler, self.max_tokens(max_length))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Other filler, and other names and values in the chains that nobody asks for; all stay where they are."""
        names, values = sample.hidden["names"], sample.hidden["values"]
        met = torch.arange(names.shape[1], device=names.device) <= sample.hidden["hops"][:, None]
        first = (torch.arange(values.shape[1], device=names.device) == 0).expand_as(values)
        facts = {
            "names": renew(names, met, self.num_names, draws, "names"),
            "values": renew(values, first, self.num_values, draws, "values"),
        }
        width = sample.tokens.shape[1]
        filler = draws.below("filler", self.symbols, width)
        return self._assemble(sample.length, {**sample.hidden, **facts}, filler, width)

    def _assemble(
        self, length: Int[Tensor, "b"], facts: dict[str, Tensor], filler: Int[Tensor, "b n"], width: int
    ) -> Sample:
        """The first chain is the one that is asked for: the order has mixed them."""
        hops, order = facts["hops"], facts["order"]
        b, most, links = len(hops), self.chains.high, self._links
        values = _FILLER + self.symbols + facts["values"]
        names = (_FILLER + self.symbols + self.num_values + facts["names"]).view(b, most, links - 1)
        right = torch.cat([values[:, :, None], names], dim=2)
        left = torch.cat([names, names[:, :, -1:]], dim=2)
        ends = torch.arange(links, device=hops.device) > hops[:, None, None]
        left = left.masked_fill(ends, _END)
        statements = torch.stack([left, torch.full_like(left, _ASSIGN), right], dim=3).flatten(1, 2)
        said = statements.gather(1, order[:, :, None].expand(-1, -1, _SIZE))
        body = length + _SIZE * facts["chains"] * (hops + 2)
        haystack = hide(_FILLER + filler, said, facts["start"])
        parts: list[Part] = [(haystack, body), (_QUERY, 1), (values[:, :1], 1), (_EQUALS, 1)]
        parts += [(names[:, 0], hops + 1), (_STOP, 1)]
        return build_sample(join(parts, width), length, body + 3, body + hops + 5, facts)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        """Every variable gets its value in the order of the prompt; the answer ends with one that a mark stands for."""
        text, statement = " ".join([*prompt, ""]), r"([A-Z]+|;) := ([A-Z]+|\d+) "
        question = re.fullmatch(rf"(?:{statement}|[a-z]+ )*\? (\d+) = ", text)
        if not question:
            raise BadInput(
                "variable_tracking: a prompt is filler, statements A := 7, B := A, ; := B, and a question, ? 7 ="
            )
        values: dict[str, str] = {}
        ends = set()
        for left, right in re.findall(statement, text):
            if left in values or not (right.isdigit() or right in values):
                raise BadInput(f"variable_tracking: {left} := {right} comes too late, or before {right} is known")
            if left == ";":
                ends.add(right)
            else:
                values[left] = values.get(right, right)
        found = [name for name, value in values.items() if value == question[3]]
        last = [number for number, name in enumerate(found) if name in ends]
        if not last:
            raise BadInput(f"variable_tracking: no chain with the value {question[3]} has an end, as in ; := B")
        return found[: last[0] + 1]

    def sparsity(self, length: int) -> int:
        return 3

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        start = sample.hidden["start"].gather(1, self._when(sample))
        asked = self._of_step(start, self.step(sample))
        index = torch.arange(sample.tokens.shape[1], device=start.device)
        before = torch.where(self.step(sample) > 0, index - 1, sample.prompt_tokens[:, None] - 2)
        return torch.stack([before, asked, asked + 2], dim=2)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        step = self.step(sample)
        assigns = (sample.tokens == _ASSIGN) & (step < -3)
        statement, token = numbered(torch.nn.functional.pad(assigns[:, 1:], (0, 1)), _SIZE)
        token = torch.where(step >= 0, 1, token)
        if "order" in sample.hidden:
            statement = torch.where(step >= 0, self._of_step(self._when(sample), step) + 1, statement)
        return torch.stack([statement, token], dim=1)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return sum(_FILLER <= token < _FILLER + self.symbols for token in tokens)

    @property
    def _links(self) -> int:
        """Statements of the longest chain: its variables and its end."""
        return self.hops.high + 2

    def _when(self, sample: Sample) -> Int[Tensor, "b links"]:
        """The number of each statement of the chain that is asked for, in the order of the prompt, from 0."""
        return sample.hidden["order"].argsort(dim=1)[:, : self._links]

    def _of_step(self, facts: Int[Tensor, "b links"], step: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        return facts.gather(1, step.clamp(0, self._links - 1))
