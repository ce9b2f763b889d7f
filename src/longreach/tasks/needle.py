"""A needle in a haystack: a few statements in much filler, and a question about one of them."""

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
from longreach.tasks.names import distinct, letters, renew
from longreach.tasks.retrieval import Retrieval, hide, numbered, scatter

_QUERY, _END, _EQUALS, _STOP, _ZERO, _FILLER = 1, 2, 3, 4, 5, 15


@register("task", "needle")
@dataclass(frozen=True, kw_only=True)
class Needle(Retrieval):
    """Find a needle in a haystack.  c A 4 0 ; a b B 7 1 ; b ? A =  ->  4 0 .

    `length` counts the filler tokens, the small letters.  A needle is a key, a value of `value_tokens` digits and the
    mark `;`, from which the stop is read; it stands after any number of filler tokens with equal probability, and all
    keys differ.  A digit needs the query, the same key in the haystack, and itself: 3-sparse.  After the
    needle-in-a-haystack tasks of RULER (Hsieh et al.), in tokens instead of text.

    Coupling on two levels (ours): the needle, counted in the order of the prompt, and the token within it; filler is
    reserved.  The query is numbered as a key.  An answer token has the IDs of what it is read from; which needle that
    is depends on the keys, so no rule gives it.  With `echo` the answer begins with the key, and every step finds
    what it reads by its own IDs.
    """

    paper = "Hsieh et al., COLM 2024"

    needles: Span = Span(4, 4)
    """Needles in a haystack: a number, or a range such as 1..8."""
    value_tokens: int = 4
    """Digits of a value."""
    num_keys: int = 100
    """How many different keys there are."""
    symbols: int = 26
    """How many different filler tokens there are."""
    echo: bool = False
    """Whether the answer repeats the key in front of its value."""

    stop_token = _STOP
    coupling_by_rule = False

    def __post_init__(self) -> None:
        if self.needles.low < 1:
            raise ValueError(f"needle.needles must be at least 1, got {self.needles}")
        for setting in ("value_tokens", "symbols"):
            if getattr(self, setting) < 1:
                raise ValueError(f"needle.{setting} must be at least 1, got {getattr(self, setting)}")
        if self.num_keys < self.needles.high:
            raise ValueError(f"needle.num_keys must be at least {self.needles.high} (needles), got {self.num_keys}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        filler = (letters(number) for number in range(self.symbols))
        keys = (letters(number).upper() for number in range(self.num_keys))
        return ("_", "?", ";", "=", ".", *"0123456789", *filler, *keys)

    @property
    def coupling_levels(self) -> tuple[Level, ...]:
        return (Level("needle"), Level("token in needle", size=self._size))

    def max_tokens(self, length: int) -> int:
        return length + self._size * self.needles.high + 3 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return self.value_tokens + 1 + self._echoed

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        most, needles = self.needles.high, self.needles.draw(draws, "needles")
        facts = {
            "needles": needles,
            "asked": draws.below("asked", needles[:, None], 1),
            "keys": distinct(draws, "keys", self.num_keys, most),
            "digits": draws.below("digits", 10, most * self.value_tokens),
            "start": scatter(draws, "places", length, needles, most, self._size),
        }
        filler = draws.below("filler", self.symbols, max_length)
        return self._assemble(length, facts, filler, self.max_tokens(max_length))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        """Other filler, and other keys and values of the needles that nobody asks for; all stay where they are."""
        keys, digits, asked = (sample.hidden[name] for name in ("keys", "digits", "asked"))
        keep = torch.arange(keys.shape[1], device=keys.device) == asked
        fresh = draws.below("digits", 10, digits.shape[1])
        facts = {
            "keys": renew(keys, keep, self.num_keys, draws, "keys"),
            "digits": torch.where(keep.repeat_interleave(self.value_tokens, dim=1), digits, fresh),
        }
        width = sample.tokens.shape[1]
        filler = draws.below("filler", self.symbols, width)
        return self._assemble(sample.length, {**sample.hidden, **facts}, filler, width)

    def _assemble(
        self, length: Int[Tensor, "b"], facts: dict[str, Tensor], filler: Int[Tensor, "b n"], width: int
    ) -> Sample:
        keys = (_FILLER + self.symbols + facts["keys"])[:, :, None]
        digits = (_ZERO + facts["digits"]).view(*keys.shape[:2], -1)
        needles = torch.cat([keys, digits, torch.full_like(keys, _END)], dim=2)
        haystack = hide(_FILLER + filler, needles, facts["start"])
        asked = needles.gather(1, facts["asked"][:, :, None].expand(-1, -1, self._size))[:, 0]
        body = length + self._size * facts["needles"]
        parts: list[Part] = [(haystack, body), (_QUERY, 1), (asked[:, :1], 1), (_EQUALS, 1)]
        parts += [(asked[:, 1 - self._echoed : -1], self.value_tokens + self._echoed), (_STOP, 1)]
        return build_sample(join(parts, width), length, body + 3, body + 3 + self.max_answer(1), facts)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        keys = "|".join(re.escape(key) for key in self._keys)
        needle = rf"({keys}) ((?:\d ){{{self.value_tokens}}}); "
        text = " ".join([*prompt, ""])
        values = re.findall(needle, text)
        question = re.fullmatch(rf"(?:{needle}|[a-z]+ )*\? ({keys}) = ", text)
        if not question or len(dict(values)) < len(values):
            size = self.value_tokens
            raise BadInput(
                f"needle: a prompt is filler, needles of a key, {size} digits and ;, and ? with a key, ? A ="
            )
        asked = question[3]
        if asked not in dict(values):
            raise BadInput(f"needle: no needle has the key {asked}")
        return [*([asked] if self.echo else []), *dict(values)[asked].split()]

    def sparsity(self, length: int) -> int:
        return 3

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        field = self._field(sample)
        needle = sample.hidden["start"].gather(1, sample.hidden["asked"]).expand_as(field)
        query = (sample.prompt_tokens[:, None] - 2).expand_as(field)
        found = field > 0  # the key repeated needs the query alone
        return torch.stack([query, needle.where(found, -1), (needle + field).where(found, -1)], dim=2)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        step, field = self.step(sample), self._field(sample)
        is_key = (sample.tokens >= _FILLER + self.symbols) & (step < -3)
        needle, token = numbered(is_key, self._size)
        token = torch.where(step >= 0, field + 1, token.masked_fill(step == -2, 1))
        if "asked" in sample.hidden:
            needle = torch.where((step >= 0) & (field > 0), sample.hidden["asked"] + 1, needle)
        return torch.stack([needle, token], dim=1)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return sum(_FILLER <= token < _FILLER + self.symbols for token in tokens)

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        return self.vocabulary[_FILLER + self.symbols :]

    @property
    def _size(self) -> int:
        """Tokens of a needle: the key, the value, the mark."""
        return self.value_tokens + 2

    @property
    def _echoed(self) -> int:
        return int(self.echo)

    def _field(self, sample: Sample) -> Int[Tensor, "b t"]:
        """The token of the needle that an answer token is read from, from 0; the stop is read from the mark."""
        return (self.step(sample) + 1 - self._echoed).clamp(0, self._size - 1)
