"""Associative recall: which value came with a key?  With one query or several, in one token or several."""

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
from longreach.tasks.names import distinct, letters, renew
from longreach.tasks.retrieval import Retrieval

_QUERY, _EQUALS, _END, _STOP = 1, 2, 3, 4


@register("task", "mqmtar")
@dataclass(frozen=True, kw_only=True)
class Mqmtar(Retrieval):
    """Recall the values of several keys.  a b c d  b a d d ? b a a b ; =  ->  d d c d .

    `length` counts the pairs; in `a b c d` the key is `a b` and the value `c d`.  Keys are all different, values need
    not be.  The queries are drawn from the pairs, and one may come twice.  A token of a value needs its query, the same
    key among the pairs, and itself: 5-sparse.  The mark `;` stands where a further query would: the stop is read from
    it.  Multi-query multi-token associative recall of Vasylenko et al.; the layout is ours, theirs has blanks between
    the pairs.

    Coupling on three levels (ours): the pair, the token within it, and the number of the query.  A query's tokens are
    numbered as those of a key and have its number; `;` has the next.  An answer token has the IDs of what it is
    read from, pair and query.  Which pair that is depends on the keys, so no rule gives it, and the sign, which
    leads to the first query, has no pair.  With `echo` the answer repeats each key in front of its value: then every
    step, the first too, finds what it reads by its own IDs.
    """

    paper = "Vasylenko et al., ICLR 2026"

    key_tokens: int = 2
    """Tokens of a key."""
    value_tokens: int = 2
    """Tokens of a value."""
    queries: Span = Span(4, 4)
    """Queries: a number, or a range such as 1..8."""
    symbols: int = 256
    """How many different symbols there are."""
    echo: bool = False
    """Whether the answer repeats each key in front of its value."""

    def __post_init__(self) -> None:
        for setting in ("key_tokens", "value_tokens"):
            if getattr(self, setting) < 1:
                raise ValueError(f"{self.name}.{setting} must be at least 1, got {getattr(self, setting)}")
        if self.queries.low < 1:
            raise ValueError(f"{self.name}.queries must be at least 1, got {self.queries}")
        if self.symbols < 2:
            raise ValueError(f"{self.name}.symbols must be at least 2, got {self.symbols}")
        if self._keys > 2**62:
            raise ValueError(f"{self.name}.key_tokens must spell at most 2**62 keys, got {self.key_tokens}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        marks = () if self._one_token else (";", ".")
        return ("_", "?", "=", *marks, *(letters(number) for number in range(self.symbols)))

    @property
    def stop_token(self) -> int | None:
        return None if self._one_token else _STOP

    @property
    def ending(self) -> tuple[str, ...]:
        return ("=",) if self._one_token else (";", "=")

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("pair"), Level("token in pair", size=self._size), Level("query"))

    @property
    def coupling_by_rule(self) -> bool:
        return self._one_token  # nobody reads the IDs of a last token

    def check_length(self, length: int) -> None:
        if not 1 <= length <= self._keys:
            raise BadInput(f"{self.name}: length must be in 1..{self._keys} (different keys), got {length}")

    def max_tokens(self, length: int) -> int:
        return self._size * length + self.key_tokens * self.queries.high + 2 + self._marks + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return self._written * self.queries.high + self._marks

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        facts = {
            "queries": self.queries.draw(draws, "queries"),
            "asked": draws.below("asked", length[:, None], self.queries.high),
            "keys": distinct(draws, "keys", self._keys, max_length),
            "values": draws.below("values", self.symbols, max_length * self.value_tokens),
        }
        return self._assemble(length, facts, self.max_tokens(max_length))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Pairs that nobody asks for get other keys and values."""
        keys, values, asked = (sample.hidden[name] for name in ("keys", "values", "asked"))
        is_query = torch.arange(asked.shape[1], device=asked.device) < sample.hidden["queries"][:, None]
        keep = torch.zeros_like(keys, dtype=torch.bool)
        keep.scatter_(1, torch.where(is_query, asked, asked[:, :1]), True)
        fresh = draws.below("values", self.symbols, values.shape[1])
        facts = {
            "keys": renew(keys, keep, self._keys, draws, "keys"),
            "values": torch.where(keep.repeat_interleave(self.value_tokens, dim=1), values, fresh),
        }
        return self._assemble(sample.length, {**sample.hidden, **facts}, width=sample.tokens.shape[1])

    def _assemble(self, length: Int[Tensor, "b"], facts: dict[str, Tensor], width: int) -> Sample:
        keys, queries = facts["keys"], facts["queries"]
        powers = [self.symbols**place for place in reversed(range(self.key_tokens))]
        spelled = torch.stack([keys // power % self.symbols for power in powers], dim=2)
        pairs = self._first + torch.cat([spelled, facts["values"].view(*keys.shape, -1)], dim=2)
        asked = pairs.gather(1, facts["asked"][:, :, None].expand(-1, -1, self._size))
        answer = asked[:, :, self._size - self._written :].flatten(1)
        parts: list[Part] = [(pairs.flatten(1), self._size * length), (_QUERY, 1)]
        parts += [(asked[:, :, : self.key_tokens].flatten(1), self.key_tokens * queries)]
        parts += [(_END, self._marks), (_EQUALS, 1), (answer, self._written * queries), (_STOP, self._marks)]
        prompt_tokens = self._size * length + self.key_tokens * queries + 2 + self._marks
        num_tokens = prompt_tokens + self._written * queries + self._marks
        return build_sample(join(parts, width), length, prompt_tokens, num_tokens, facts)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        words, m, size = list(prompt), self.key_tokens, self._size
        end = words.index("?") if "?" in words else 0
        body, asked = words[:end], words[end + 1 : len(words) - len(self.ending)]
        number = len(asked) // m
        known = {tuple(body[at : at + m]): body[at + m : at + size] for at in range(0, end, size)}
        if (
            words != [*body, "?", *asked, *self.ending]
            or not {*body, *asked}.isdisjoint(("?", "=", ";", "."))
            or (end % size, len(asked) % m) != (0, 0)
            or len(known) * size != end
            or not 1 <= number <= (1 if self._one_token else number)
        ):
            example = " ".join(["pairs of a key and a value, ?, queries,", *self.ending])
            raise BadInput(f"{self.name}: a prompt is {example}; a key has {m} tokens, a pair {size}, all keys differ")
        answer = []
        for key in (tuple(asked[at : at + m]) for at in range(0, len(asked), m)):
            if key not in known:
                raise BadInput(f"{self.name}: no pair has the key {' '.join(key)}")
            answer += [*(key if self.echo else ()), *known[key]]
        return answer

    def sparsity(self, length: int) -> int:
        return 2 * self.key_tokens + 1

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step = self.step(sample)
        number, field = self._written_at(step)
        asked = self._size * self._asked(sample, number)
        query = self._size * sample.length[:, None] + 1 + self.key_tokens * number
        token = torch.arange(self.key_tokens, device=step.device)
        value = torch.cat([query[:, :, None] + token, asked[:, :, None] + token, (asked + field)[:, :, None]], dim=2)
        only = torch.full_like(value, -1)
        only[:, :, 0] = torch.where(self._is_stop(sample), sample.prompt_tokens[:, None] - 2, query + field)
        alone = self._is_stop(sample) | (field < self.key_tokens)  # the mark, or a key repeated
        return torch.where(alone[:, :, None], only, value)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        step, first = self.step(sample), index - self._size * sample.length[:, None] - 1  # 0 at the first query
        is_query = (first >= 0) & (step < -1 - self._marks)
        is_mark = (step == -2) & (self._marks > 0)
        pair = torch.where(first < -1, index // self._size + 1, 0)
        token = torch.where(first < -1, index % self._size + 1, torch.where(is_query, first % self.key_tokens + 1, 0))
        query = torch.where(is_query | is_mark, first // self.key_tokens + 1, 0)
        number, field = self._written_at(step)
        stop = self._is_stop(sample)
        is_value = (step >= 0) & ~stop & (field >= self.key_tokens)
        if "asked" in sample.hidden and not self._one_token:
            pair = torch.where(is_value, self._asked(sample, number) + 1, pair)
        token = torch.where(stop | is_mark, 1, torch.where(step >= 0, field + 1, token))
        return torch.stack([pair, token, torch.where(step >= 0, number + 1, query)], dim=1)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return list(tokens).index(_QUERY) // self._size

    @property
    def _size(self) -> int:
        """Tokens of a pair."""
        return self.key_tokens + self.value_tokens

    @property
    def _written(self) -> int:
        """Tokens of an answer for each query."""
        return self._size if self.echo else self.value_tokens

    @property
    def _one_token(self) -> bool:
        return self._written * self.queries.high == 1

    @property
    def _marks(self) -> int:
        """Where an answer is one token, there is no mark and no stop."""
        return 0 if self._one_token else 1

    @property
    def _first(self) -> int:
        """The token of the first symbol."""
        return _EQUALS + 1 if self._one_token else _STOP + 1

    @property
    def _keys(self) -> int:
        """How many different keys there are."""
        return int(self.symbols**self.key_tokens)

    def _written_at(self, step: Int[Tensor, "b t"]) -> tuple[Int[Tensor, "b t"], Int[Tensor, "b t"]]:
        """The number of the query that an answer token belongs to, and its token of the pair, both from 0."""
        step = step.clamp(min=0)
        return step // self._written, step % self._written + self._size - self._written

    def _is_stop(self, sample: Sample) -> Tensor:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return (index >= sample.num_tokens[:, None] - 1) & (self._marks > 0)

    @staticmethod
    def _asked(sample: Sample, number: Int[Tensor, "b t"]) -> Int[Tensor, "b t"]:
        """The pair that a query asks for, both counted from 0."""
        asked = sample.hidden["asked"]
        return asked.gather(1, number.clamp(max=asked.shape[1] - 1))


@register("task", "associative_recall")
@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(Mqmtar):
    """Recall the value of one key.  a c  b d  c c ? b =  ->  d

    `length` counts the pairs.  Key and value are one token each, the answer is one token: it needs the query, the same
    key among the pairs, and its value: 3-sparse.  With `queries: 4` it is the multi-query recall of Arora et al. (ICLR
    2024), `? b a ; = -> d c .`, all queries first.  The settings and the coupling are those of `mqmtar`.
    """

    paper = "Ba et al., NeurIPS 2016"

    key_tokens: int = 1
    value_tokens: int = 1
    queries: Span = Span(1, 1)
    symbols: int = 1000
