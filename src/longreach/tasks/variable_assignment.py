"""Variable assignment: every step is sparse, but *where* its tokens stand depends on the input."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.names import LAST, distinct, distinct_besides, letters, smallest

_QUERY, _STOP, _EQUALS, _FIRST_SYMBOL = 1, 2, 3, 4
_END = -1
"""Stands in a chain where a name would, behind the last one."""


@register("task", "variable_assignment")
@dataclass(frozen=True, kw_only=True)
class VariableAssignment(Task):
    """Follow a chain of assignments.  c d  a b  y z  b c  x y ? a  ->  b c d .

    `length` counts the statements.  A statement `a b` says that a stands for b; names on the left are all
    different.  A chain of `hops` statements is hidden among other chains of the same law, in random order, so that
    only the query tells them apart.  The last name of a chain is defined nowhere, or, with `end: marked`, by a
    statement `d .`.  The last of the other chains is cut short to fit.  Each step needs the current name and its
    statement.  Without the scratchpad the answer is the last name alone and needs the whole chain.

    Coupling: a statement's tokens share its number; a second level numbers the tokens within it.  Published: an
    answer token carries the IDs of the token it was read from.  Aligned: it carries those of the token that the next
    step must read, which for the last token of a name is in the statement that defines the name.  Both depend on the
    input, so no rule gives them during generation.  The layout is our reading of Golowich et al. (ICML 2025); both
    couplings are ours.
    """

    paper = "Golowich et al., ICML 2025"

    hops: Span = Span(3, 3)
    """Statements in the chain: a number, or a range such as 1..8."""
    num_names: int = 1000
    """How many different names there are."""
    name_tokens: int = 1
    """Tokens that spell one name."""
    scratchpad: bool = True
    """Whether the answer spells the chain name by name, or only its end."""
    echo: bool = False
    """Whether the scratchpad begins with the query itself, so that every step reads what its ID leads to:
    ? a =  ->  a b c d ."""
    end: Literal["absent", "marked"] = "absent"
    """What ends a chain: that nothing defines its last name, or a statement that says so.  An absence can only be
    noticed by looking at every statement."""
    query_id: Literal["reserved", "given"] = "reserved"
    """Coupled ID of the query: reserved, or the ID of its statement, which gives the first hop away."""
    distractors: Literal["chains", "pointers"] = "chains"
    """Other statements: chains of the same law, or pointers at any other name outside the chain.  Pointers
    give the chain away: its names stand on the right another number of times, and its end alone is marked."""
    into_chain: float = 0.0
    """Probability that another statement points at a name of the chain instead.  Above 0, the most frequent names of a
    long prompt are those of the chain."""

    def __post_init__(self) -> None:
        if self.echo and not self.scratchpad:
            raise ValueError("variable_assignment.echo needs the scratchpad")
        if self.hops.low < 1:
            raise ValueError(f"variable_assignment.hops must be at least 1, got {self.hops}")
        if self.name_tokens < 1:
            raise ValueError(f"variable_assignment.name_tokens must be at least 1, got {self.name_tokens}")
        if not 0 <= self.into_chain <= 1:
            raise ValueError(f"variable_assignment.into_chain must be in 0..1, got {self.into_chain}")
        if self.num_names < self.hops.high + 3:
            raise ValueError(f"variable_assignment.num_names={self.num_names} is too few for {self.hops} hops")

    @cached_property
    def _symbols(self) -> int:
        """Symbols needed so that `name_tokens` of them spell every name."""
        symbols = 2
        while symbols**self.name_tokens < self.num_names:
            symbols += 1
        return symbols

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "?", ".", "=", *(letters(number) for number in range(self._symbols)))

    @property
    def stop_token(self) -> int | None:
        return _STOP

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("statement"), Level("token in statement", size=2 * self.name_tokens))

    @property
    def coupling_by_rule(self) -> bool:
        return not self.scratchpad and self.query_id == "reserved"

    def check_length(self, length: int) -> None:
        if length < self.hops.low + self._marked:
            raise BadInput(f"variable_assignment: length {length} is too short for {self.hops.low} hops")
        if self.distractors == "pointers":
            needed = length + self.hops.high + 2
        else:  # a name for each statement, another one behind each chain that ends by absence
            needed = length + 1 + (0 if self._marked else -(-length // self.hops.low))
        if needed > self.num_names:
            raise BadInput(
                f"variable_assignment: length {length} needs {needed} names, num_names is {self.num_names}"
                " (raise it, with more name_tokens if the vocabulary should stay small)"
            )

    def max_tokens(self, length: int) -> int:
        return 2 * self.name_tokens * length + self._question_size + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        names = min(self.hops.high, length - self._marked) + self._echoed if self.scratchpad else 1
        return names * self.name_tokens + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        links = min(self.hops.high + self._marked, max_length)  # statements of the longest chain
        hops = self.hops.draw(draws, "hops", at_most=length - self._marked)
        chain = distinct(draws, "chain", self.num_names, links + 1)
        beyond = torch.arange(max_length, device=length.device) >= length[:, None]
        place = smallest(draws.bits("place", max_length).masked_fill(beyond, LAST), links)
        width = self.max_tokens(max_length)
        return self._assemble(length, max_length, hops, chain, place, draws.child("distractors"), width)

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        facts = (sample.hidden["hops"], sample.hidden["chain"], sample.hidden["place"])
        return self._assemble(sample.length, int(sample.length.max()), *facts, draws, width=sample.tokens.shape[1])

    def _assemble(
        self,
        length: Int[Tensor, "b"],
        max_length: int,
        hops: Int[Tensor, "b"],
        chain: Int[Tensor, "b names"],
        place: Int[Tensor, "b links"],
        draws: Draws,
        width: int,
    ) -> Sample:
        """Hide the chain's statements at their places among fresh distractors."""
        drawn = chain
        number = torch.arange(chain.shape[1], device=length.device)
        # names outside the chain, in random order
        in_chain = number <= hops[:, None]
        count = max_length + 1 + (-(-max_length // self.hops.low) if self.distractors == "chains" else 0)
        others = distinct_besides(draws, "names", self.num_names, min(count, self.num_names), chain, in_chain)
        step = number[1:] <= hops[:, None] + self._marked  # [b, links]: whether the chain has this statement
        if self.distractors == "chains":
            left, right = self._chains(others, length, max_length, hops, place, step, draws)
        else:
            left, right = self._pointers(others, length, max_length, draws)

        if self.end == "marked":
            chain = torch.where(number == hops[:, None] + 1, _END, chain)
        inside = chain.gather(1, draws.below("into", hops[:, None] + self._marked + 1, max_length))
        right = torch.where(draws.uniform("which", max_length) < self.into_chain, inside, right)
        left = left.scatter(1, place, torch.where(step, chain[:, :-1], left.gather(1, place)))
        right = right.scatter(1, place, torch.where(step, chain[:, 1:], right.gather(1, place)))

        statements = self._spell(torch.stack([left, right], dim=2).flatten(1))
        if self.scratchpad:
            answer, names = self._spell(chain if self.echo else chain[:, 1:]), hops + self._echoed
        else:
            answer, names = self._spell(chain.gather(1, hops[:, None])), torch.ones_like(hops)
        m = self.name_tokens
        parts: list[Part] = [(statements, 2 * m * length), (_QUERY, 1), (self._spell(chain[:, :1]), m)]
        parts += [(_EQUALS, self._echoed)]
        parts += [(answer, m * names), (_STOP, 1)]
        prompt_tokens = 2 * m * length + self._question_size
        return build_sample(
            join(parts, width),
            length,
            prompt_tokens,
            num_tokens=prompt_tokens + m * names + 1,
            hidden={"hops": hops, "place": place, "chain": drawn},
        )

    def _chains(
        self,
        names: Int[Tensor, "b others"],
        length: Int[Tensor, "b"],
        max_length: int,
        hops: Int[Tensor, "b"],
        place: Int[Tensor, "b links"],
        step: Bool[Tensor, "b links"],
        draws: Draws,
    ) -> tuple[Int[Tensor, "b s"], Int[Tensor, "b s"]]:
        """Return both sides of all statements, those of the chain itself undecided: other chains, shuffled."""
        shortest = self.hops.low + self._marked
        most = -(-max_length // shortest)
        sizes = shortest + draws.below("sizes", self.hops.high - self.hops.low + 1, most)
        number = torch.arange(max_length + 1, device=length.device).expand(len(length), -1).contiguous()
        chains_before = torch.searchsorted(sizes.cumsum(1), number, right=True)
        free = (length - hops - self._marked)[:, None]
        is_last = (chains_before.diff(dim=1) > 0) | (number[:, 1:] == free)
        number = number[:, :-1]
        # a marked chain has as many names as statements, another one has one more
        first = number if self._marked else number + chains_before[:, :-1]
        last = names.shape[1] - 1  # behind the free statements there may be no names left, and none is needed
        left, right = names.gather(1, first.clamp(max=last)), names.gather(1, (first + 1).clamp(max=last))
        if self._marked:
            right = right.masked_fill(is_last, _END)
        taken = torch.zeros_like(left, dtype=torch.bool).scatter(1, place, step)
        order = draws.bits("order", max_length).masked_fill(taken | (number >= length[:, None]), LAST).argsort(dim=1)
        return torch.zeros_like(left).scatter(1, order, left), torch.zeros_like(left).scatter(1, order, right)

    def _pointers(
        self, names: Int[Tensor, "b others"], length: Int[Tensor, "b"], max_length: int, draws: Draws
    ) -> tuple[Int[Tensor, "b s"], Int[Tensor, "b s"]]:
        """Return both sides of statements that each point at the name of another, or at one that has no statement."""
        target = draws.below("target", length[:, None], max_length)
        return names[:, :max_length], names.gather(
            1, target + (target >= torch.arange(max_length, device=length.device)).long()
        )

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = sample.tokens[row, : int(sample.prompt_tokens[row])].tolist()
        m, end = self.name_tokens, prompt.index(_QUERY)
        names = [tuple(prompt[i : i + m]) for i in range(0, end, m)]
        stands_for = dict(zip(names[::2], names[1::2], strict=True))
        chain = [tuple(prompt[end + 1 : end + 1 + m])]
        while chain[-1] in stands_for and stands_for[chain[-1]][0] != _STOP:
            if chain[-1] in chain[:-1]:
                raise BadInput(f"variable_assignment: the chain returns to {' '.join(self.words(chain[-1]))}")
            chain.append(stands_for[chain[-1]])
        answer = chain[1 - self._echoed :] if self.scratchpad else chain[-1:]
        return [token for name in answer for token in name] + [_STOP]

    def sparsity(self, length: int) -> int:
        if self.scratchpad:
            return 2 * self.name_tokens + 1  # the current name, the same name on the left, one token on the right
        return self.name_tokens * (2 * min(self.hops.high, length) + 1)

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        """Where a chain ends by absence, the stop token is charged with the last name only: by the task's law
        nothing defines that name."""
        m, hops, place = self.name_tokens, sample.hidden["hops"][:, None, None], sample.hidden["place"]
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        row, column = index[None, :, None], index[None, None, :]
        prompt_end = sample.prompt_tokens[:, None, None]
        after = row - prompt_end
        link = self._statement_of(column, prompt_end, place, hops)
        query = (column >= prompt_end - m - self._echoed) & (column < prompt_end - self._echoed)
        if not self.scratchpad:
            is_chain = (link >= 0) & (link < hops)
            return torch.where(after == m, column == row - 1, is_chain | query) & sample.answer[:, :, None]
        which = after % m
        name = after // m + 1 - self._echoed  # the chain's name that is written; name 0 is the query, repeated
        current = (column >= row - which - m) & (column < row - which)
        offset = column % (2 * m)
        read = (link == name - 1) & ((offset < m) | (offset == m + which))
        stops_by_absence = (name == hops + 1) & (self.end == "absent")
        return (torch.where(name == 0, column == row - m - 1, current | (read & ~stops_by_absence))) & sample.answer[
            :, :, None
        ]

    def _statement_of(self, column: Tensor, prompt_end: Tensor, place: Tensor, hops: Tensor) -> Tensor:
        """Which chain statement a prompt token belongs to, from 0; -1 for any other token."""
        number = column // (2 * self.name_tokens)
        found = torch.full_like(number.expand(len(place), -1, -1), -1)
        for link in range(place.shape[1]):
            hit = (number == place[:, link, None, None]) & (link < hops + self._marked)
            found = torch.where(hit & (column < prompt_end - self._question_size), link, found)
        return found

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        m = self.name_tokens
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(sample.tokens)
        after = index - sample.prompt_tokens[:, None]  # 0 at the first answer token, negative before
        query = sample.prompt_tokens[:, None] - m - self._echoed  # index of the query's first token
        in_statement, in_query = index < query - 1, (index >= query) & (index < query + m)
        statement = (index // (2 * m) + 1).masked_fill(~in_statement, 0)
        # the query's tokens are numbered as those of a name on the left; the equals sign leads to the first of them
        token = torch.where(in_statement, index % (2 * m) + 1, (index - query + 1) * in_query)
        if self.echo and form == "aligned":
            token = token.masked_fill(after == -1, 1)

        if "place" in sample.hidden:
            hops, place = sample.hidden["hops"][:, None], sample.hidden["place"]
            # number of the statement that defines each name of the chain, between two reserved ones: nothing was read
            # before name 0, and the last name may be defined nowhere
            links = place.shape[1]
            is_link = torch.arange(links, device=place.device) < hops + self._marked
            defined = torch.nn.functional.pad((place + 1).masked_fill(~is_link, 0), (1, 1))
            name = (torch.div(after, m, rounding_mode="floor") + 1 - self._echoed).masked_fill(in_query, 0)
            which = torch.where(in_query, index - query, after % m)
            last_token = which == m - 1
            defining = defined.gather(1, (name + 1).clamp(0, links + 1))
            source = defined.gather(1, name.clamp(0, links + 1))
            read = which + 1 + m * (name > 0)  # the echo is read from the query, other names from a right side
            if form == "aligned":
                leads_to = torch.where(last_token, defining, source), torch.where(last_token, m + 1, read + 1)
            else:
                leads_to = source, read
            in_answer = (after >= 0) & (name <= hops) & self.scratchpad
            statement = torch.where(in_answer, leads_to[0], statement)
            token = torch.where(in_answer, leads_to[1], token)
            if self.query_id == "given":
                statement = torch.where(in_query & last_token, defining, statement)
        return torch.stack([statement, token], dim=1)

    def parse(self, text: str) -> list[int]:
        tokens = super().parse(text)
        m = self.name_tokens
        if self.echo and tokens[-1] != _EQUALS:
            tokens.append(_EQUALS)
        if tokens.count(_QUERY) != 1 or len(tokens) - tokens.index(_QUERY) != self._question_size:
            raise BadInput(f"variable_assignment: a prompt ends with ? and one name of {m} tokens: a b b c ? a")
        if tokens.index(_QUERY) % (2 * m):
            raise BadInput(f"variable_assignment: a statement has {2 * m} tokens, got {tokens.index(_QUERY)} before ?")
        return tokens

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return (len(tokens) - self._question_size) // (2 * self.name_tokens)

    @property
    def _question_size(self) -> int:
        return 1 + self.name_tokens + self._echoed  # the mark, the query and the equals sign

    @property
    def _echoed(self) -> int:
        """Names of an answer that only repeat the query."""
        return int(self.echo)

    @property
    def _marked(self) -> int:
        """Statements of a chain that only end it."""
        return int(self.end == "marked")

    def _spell(self, names: Int[Tensor, "b n"]) -> Int[Tensor, "b symbols"]:
        """Each name as `name_tokens` symbols, the most significant first; the end as stop tokens."""
        powers = [self._symbols**place for place in reversed(range(self.name_tokens))]
        symbols = torch.stack([names // power % self._symbols for power in powers], dim=2)
        return torch.where(names[..., None] == _END, _STOP, _FIRST_SYMBOL + symbols).flatten(1)
