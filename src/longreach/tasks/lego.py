"""LEGO: a chain of signs, each clause saying how one variable follows from another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, build_sample, join
from longreach.tasks.names import LAST, distinct, letters, smallest
from longreach.tasks.retrieval import Retrieval

_QUERY, _CLOSE, _EQUALS, _PLUS, _MINUS, _ONE, _STOP = 1, 2, 3, 4, 5, 6, 7
_SIZE = 4
"""Tokens of a clause: a variable, a sign, what it is the sign of, and the mark that closes it."""


@register("task", "lego")
@dataclass(frozen=True, kw_only=True)
class Lego(Retrieval):
    """Resolve a chain of clauses.  b - a ; a + 1 ; c - b ; ? c =  ->  a + b - c + .

    `length` counts the clauses.  `a + 1` says that a is 1, `b - a` that b is minus a.  All variables form one chain,
    its clauses stand in random order, and the last one is asked for.  The answer resolves them one by one,
    variable and sign.  A variable needs the one before and its clause's two names; a sign needs the sign before, the
    variable, and its clause's variable and sign: 4-sparse.  The stop needs the last variable and the query.  Without
    the scratchpad the answer is the sign of the last variable alone and needs all clauses: k grows as 3n + 1.
    The task of Zhang et al.; the layout is ours.

    Coupling on two levels (ours): the clause, counted in the order of the prompt, and the token within it, of which
    the closing mark is the last.  An answer token has the IDs of what it is read from, a variable or a sign.  Where the
    next clause stands depends on the names, so no rule gives it.
    """

    paper = "Zhang et al., 2022"

    scratchpad: bool = True
    """Whether the answer resolves the chain variable by variable, or is only the last sign."""
    num_names: int = 1000
    """How many different variables there are."""

    coupling_levels = (Level("clause"), Level("token in clause", size=_SIZE))

    def __post_init__(self) -> None:
        if self.num_names < 2:
            raise ValueError(f"lego.num_names must be at least 2, got {self.num_names}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        stop = (".",) if self.scratchpad else ()
        return ("_", "?", ";", "=", "+", "-", "1", *stop, *(letters(number) for number in range(self.num_names)))

    @property
    def stop_token(self) -> int | None:
        return _STOP if self.scratchpad else None

    @property
    def coupling_by_rule(self) -> bool:
        return not self.scratchpad  # nobody reads the IDs of a last token

    def check_length(self, length: int) -> None:
        if not 1 <= length <= self.num_names:
            raise BadInput(f"lego: length must be in 1..{self.num_names} (num_names), got {length}")

    def max_tokens(self, length: int) -> int:
        return _SIZE * length + 3 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return 2 * length + 1 if self.scratchpad else 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        # all in the order of the chain
        names = distinct(draws, "names", self.num_names, max_length) + (_STOP + 1 if self.scratchpad else _STOP)
        minus = draws.below("signs", 2, max_length)
        beyond = torch.arange(max_length, device=length.device) >= length[:, None]
        place = smallest(draws.bits("place", max_length).masked_fill(beyond, LAST), max_length)
        right = torch.nn.functional.pad(names[:, :-1], (1, 0), value=_ONE)
        clauses = torch.stack([names, _PLUS + minus, right, torch.full_like(names, _CLOSE)], dim=2)
        written = torch.empty_like(clauses).scatter_(1, place[:, :, None].expand_as(clauses), clauses).flatten(1)

        signs = _PLUS + minus.cumsum(1) % 2
        last = length[:, None] - 1
        parts: list[Part] = [(written, _SIZE * length), (_QUERY, 1), (names.gather(1, last), 1), (_EQUALS, 1)]
        if self.scratchpad:
            parts += [(torch.stack([names, signs], dim=2).flatten(1), 2 * length), (_STOP, 1)]
        else:
            parts += [(signs.gather(1, last), 1)]
        prompt_tokens = _SIZE * length + 3
        num_tokens = prompt_tokens + (2 * length + 1 if self.scratchpad else 1)
        return build_sample(
            join(parts, self.max_tokens(max_length)), length, prompt_tokens, num_tokens, {"place": place}
        )

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        return replace(sample)  # every clause is read

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        """From the query back to the one, then forward again."""
        words, end = list(prompt), len(prompt) - 3
        clauses = [words[at : at + _SIZE] for at in range(0, end, _SIZE)]
        given = {clause[0]: clause[1:3] for clause in clauses}
        signs = {"?", ";", "=", "+", "-", "."}
        if (
            not clauses
            or len(given) < len(clauses)
            or any(
                c[1:2] + c[3:] not in (["+", ";"], ["-", ";"]) or signs & {c[0], c[2]} or c[0] == "1" for c in clauses
            )
            or [words[-3], words[-1]] != ["?", "="]
        ):
            raise BadInput(
                "lego: a prompt is clauses, a + 1 ; b - a ;, each of another variable, and ? with one, ? b ="
            )
        chain = [words[-2]]
        while chain[-1] != "1":
            if chain[-1] not in given or len(chain) > len(given):
                raise BadInput(f"lego: the clauses do not lead from {words[-2]} to 1")
            chain.append(given[chain[-1]][1])
        answer, value = [], 1
        for name in reversed(chain[:-1]):
            value = value if given[name][0] == "+" else -value
            answer += [name, "+" if value > 0 else "-"]
        return answer if self.scratchpad else answer[-1:]

    def sparsity(self, length: int) -> int:
        if not self.scratchpad:
            return 3 * length + 1
        return 4 if length > 1 else 3

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        if self.scratchpad:
            return super().depends_on(sample)
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        in_clause = (index < _SIZE * sample.length[:, None]) & (index % _SIZE < _SIZE - 1)
        needed = in_clause | (index == sample.prompt_tokens[:, None] - 2)
        return needed[:, None, :] & sample.answer[:, :, None]

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step = self.step(sample)
        index = torch.arange(step.shape[1], device=step.device).expand_as(step)
        clause, none = _SIZE * self._clause(sample, step), torch.full_like(step, -1)
        before = torch.where(step >= 2, index - 2, -1)
        variable = torch.stack([before, clause, clause + 2, none], dim=2)
        sign = torch.stack([before, index - 1, clause, clause + 1], dim=2)
        stop = torch.stack([before, (sample.prompt_tokens[:, None] - 2).expand_as(step), none, none], dim=2)
        found = torch.where((step % 2 == 0)[:, :, None], variable, sign)
        return torch.where((step == 2 * sample.length[:, None])[:, :, None], stop, found)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step, end = self.step(sample), _SIZE * sample.length[:, None]
        clause = torch.where(index < end, index // _SIZE + 1, 0)
        token = torch.where(index < end, index % _SIZE + 1, 0)
        resolves = (step >= 0) & (step < 2 * sample.length[:, None]) & self.scratchpad
        if "place" in sample.hidden:
            clause = torch.where(resolves, self._clause(sample, step) + 1, clause)
        token = torch.where(resolves, step % 2 + 1, token)
        return torch.stack([clause, token], dim=1)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return (len(tokens) - 3) // _SIZE

    @staticmethod
    def _clause(sample: Sample, step: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The clause of the variable that an answer token names or has the sign of, from 0."""
        place = sample.hidden["place"]
        return place.gather(1, (step // 2).clamp(0, place.shape[1] - 1))
