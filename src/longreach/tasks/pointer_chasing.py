"""Pointer chasing: follow a map as often as the prompt says, with no end but the count."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Task, build_sample, join
from longreach.tasks.names import LAST, distinct, letters, renew, smallest

_QUERY, _MARK, _END, _EQUALS, _STOP, _FIRST_NAME = 1, 2, 3, 4, 5, 6


@register("task", "pointer_chasing")
@dataclass(frozen=True, kw_only=True)
class PointerChasing(Task):
    """Follow a map for as many hops as there are marks.  b c  a b  c a ? a # # ; =  ->  a b c .

    `length` counts the statements.  A statement `a b` says that a leads to b.  The names on the left are all
    different, the right sides are the same names, and together they form one cycle in random order, so that no
    walk ends by itself.  The answer is the walk with its start: a name needs the name before it, that name's
    statement, and its mark, which says that the walk goes on; the mark `;` says that it does not.

    Coupling on two levels.  A statement's tokens share its number; the marks are numbered, and `;` is one more.
    Aligned: a name carries the statement that defines it and the number of the next mark, which are what the
    next step reads.  Published: the statement and the mark that it was read from, none for the first.  Everything
    else is reserved.  The task and both couplings are ours, after Golowich et al. (ICML 2025).
    """

    hops: Span = Span(3, 3)
    """Hops of the walk: a number, or a range such as 1..8."""
    num_names: int = 1000
    """How many different names there are."""

    stop_token = _STOP
    coupling_levels = (Level("statement"), Level("step"))
    coupling_by_rule = False

    def __post_init__(self) -> None:
        if self.hops.low < 1:
            raise ValueError(f"pointer_chasing.hops must be at least 1, got {self.hops}")
        if self.num_names < 2:
            raise ValueError(f"pointer_chasing.num_names must be at least 2, got {self.num_names}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        return ("_", "?", "#", ";", "=", ".", *(letters(number) for number in range(self.num_names)))

    def check_length(self, length: int) -> None:
        if not 2 <= length <= self.num_names:
            raise BadInput(f"pointer_chasing: length must be in 2..{self.num_names} (num_names), got {length}")

    def max_tokens(self, length: int) -> int:
        return 2 * length + 4 + self.hops.high + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return self.hops.high + 2

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        hops = self.hops.draw(draws, "hops")
        # the cycle from its start on, and where the statement of each of its names stands
        cycle = distinct(draws, "names", self.num_names, max_length)
        beyond = torch.arange(max_length, device=length.device) >= length[:, None]
        place = smallest(draws.bits("place", max_length).masked_fill(beyond, LAST), max_length)
        return self._assemble(length, hops, cycle, place, self.max_tokens(max_length))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Statements keep their places; names that the walk does not meet are drawn again."""
        hops, cycle, place = (sample.hidden[name] for name in ("hops", "cycle", "place"))
        met = torch.arange(cycle.shape[1], device=cycle.device) <= hops[:, None]
        cycle = renew(cycle, met, self.num_names, draws, "names")
        return self._assemble(sample.length, hops, cycle, place, width=sample.tokens.shape[1])

    def _assemble(
        self,
        length: Int[Tensor, "b"],
        hops: Int[Tensor, "b"],
        cycle: Int[Tensor, "b n"],
        place: Int[Tensor, "b n"],
        width: int,
    ) -> Sample:
        index = torch.arange(max(cycle.shape[1], self.hops.high) + 1, device=length.device)
        walk = cycle.gather(1, index % length[:, None])  # goes round the cycle if it is long enough
        n = cycle.shape[1]
        left = torch.empty_like(cycle).scatter_(1, place, cycle)
        right = torch.empty_like(cycle).scatter_(1, place, walk[:, 1 : n + 1])
        statements = torch.stack([left, right], dim=2).flatten(1)
        parts: list[Part] = [(_FIRST_NAME + statements, 2 * length), (_QUERY, 1), (_FIRST_NAME + walk[:, :1], 1)]
        parts += [(_MARK, hops), (_END, 1), (_EQUALS, 1), (_FIRST_NAME + walk, hops + 1), (_STOP, 1)]
        prompt_tokens = 2 * length + hops + 4
        hidden = {"hops": hops, "cycle": cycle, "place": place}
        return build_sample(join(parts, width), length, prompt_tokens, prompt_tokens + hops + 2, hidden)

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = sample.tokens[row, : int(sample.prompt_tokens[row])].tolist()
        end = prompt.index(_QUERY)
        leads_to = dict(zip(prompt[:end:2], prompt[1:end:2], strict=True))
        walk = [prompt[end + 1]]
        for _ in range(prompt.count(_MARK)):
            if walk[-1] not in leads_to:
                raise BadInput(f"pointer_chasing: no statement says where {self.vocabulary[walk[-1]]} leads to")
            walk.append(leads_to[walk[-1]])
        return [*walk, _STOP]

    def sparsity(self, length: int) -> int:
        return 4  # the name before, its statement's two tokens, a mark

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        column = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)[None, None, :]
        row = column.transpose(1, 2)
        step = row - sample.prompt_tokens[:, None, None]  # 0 is the start, hops + 1 the stop token
        hops, query = sample.hidden["hops"][:, None, None], 2 * sample.length[:, None, None]
        statement = self._statement(sample, step[:, :, 0] - 1)[:, :, None]
        read = (column == row - 1) | (column // 2 == statement)
        needed = (column == query + 1 + step) | (read & (step >= 1) & (step <= hops))  # start, mark or `;`
        return needed & sample.answer[:, :, None]

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        query = 2 * sample.length[:, None]
        after = index - sample.prompt_tokens[:, None]  # 0 at the start of the walk
        in_answer = (after >= 0) & (index < sample.num_tokens[:, None] - 1)  # the stop token is reserved
        number = after + 1 if form == "aligned" else after  # of the mark that a name carries

        marks = (index - query - 1).clamp(min=0).masked_fill(after >= -1, 0)  # `;` is the last, `=` has none
        step = torch.where(in_answer, number, marks)
        statement = (index // 2 + 1).masked_fill(index >= query, 0)
        if "place" in sample.hidden:
            of_name = self._statement(sample, number - 1) + 1
            statement = torch.where(in_answer & (number >= 1), of_name, statement)
        return torch.stack([statement, step], dim=1)

    def parse(self, text: str) -> list[int]:
        tokens = super().parse(text)
        end = tokens.index(_QUERY) if _QUERY in tokens else 0
        names, hops = [*tokens[:end], *tokens[end + 1 : end + 2]], len(tokens) - end - 4
        if not end or end % 2 or min(names) < _FIRST_NAME or tokens[end + 2 :] != [_MARK] * hops + [_END, _EQUALS]:
            raise BadInput(f"pointer_chasing: a prompt is statements and a question, a b b a ? a # ; =, got {text!r}")
        return tokens

    def prompt_batch(self, tokens: Sequence[int], budget: int) -> Sample:
        length = list(tokens).index(_QUERY) // 2  # counted, since any number of marks may follow
        return replace(super().prompt_batch(tokens, budget), length=torch.tensor([length]))

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return tokens.index(_QUERY) // 2

    @staticmethod
    def _statement(sample: Sample, step: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The statement that defines name `step` of the walk, both counted from 0."""
        return sample.hidden["place"].gather(1, step.clamp(min=0) % sample.length[:, None])
