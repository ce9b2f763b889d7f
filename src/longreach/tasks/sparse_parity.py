"""Sparse parity, the paper's own task for "the fewer tokens matter, the farther a model reaches"; its scratchpad."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Part, Sample, Task, Worksheet, build_sample, join

_OFF, _ON, _ZERO = 1, 2, 3  # the bit 1 is _ZERO + 1
_END, _EQUALS, _STOP = 5, 6, 7  # of the scratchpad


def _draw_pairs(
    length: Int[Tensor, "b"], k: Int[Tensor, "b"], draws: Draws, max_length: int
) -> tuple[Int[Tensor, "b pairs"], Bool[Tensor, "b pairs"]]:
    """Return the bit of each pair, and whether its mark is on: exactly k marks are."""
    widest = max_length // 2
    # one number per pair serves twice: its last bit is the bit, the others order the pairs
    number = draws.bits("pair", widest)
    order = number >> 1
    if widest > 1:
        beyond = torch.arange(widest, device=length.device) >= length[:, None] // 2
        order = order.masked_fill(beyond, torch.iinfo(torch.int64).max)
    kth_smallest = order.sort(dim=1).values.gather(1, k[:, None] - 1)
    return number & 1, order <= kth_smallest


def _check_pairs(name: str, k: Span, length: int) -> None:
    """Refuse a length that is odd or has too few pairs."""
    if length < 2 or length % 2:
        raise BadInput(f"{name}: length counts marks and bits, so it must be even, got {length}")
    if k.low > length // 2:
        raise BadInput(f"{name}: length {length} has {length // 2} pairs, too few for k={k.low}")


def _interleave(bit: Int[Tensor, "b pairs"], mark: Bool[Tensor, "b pairs"]) -> Int[Tensor, "b tokens"]:
    """Return marks and bits in turn."""
    return torch.stack([_OFF + mark.long(), _ZERO + bit], dim=2).flatten(1)


@register("task", "sparse_parity")
@dataclass(frozen=True, kw_only=True)
class SparseParity(Task):
    """Parity of the marked bits.  Marks and bits alternate:  - 1 + 0 + 1 - 0  ->  1.

    `length` counts the input tokens, two for each pair, so it is even.  Exactly k marks are on, at a
    uniformly random k-subset of the pairs, where k is uniform over its range cut at the number of pairs.
    The answer is one token, predicted at the last input token: there is no separator and no stop token.
    From Golowich et al. (ICML 2025), section on sparse parity; this layout of D_sp is our reading.  Other labels of
    the same marked bits, which are ours, tell sparsity from sensitivity.
    """

    paper = "Golowich et al., ICML 2025"

    k: Span = Span(1, 8)
    """How many marks are on: a number, or a range such as 1..8."""
    label: Literal["parity", "sum_mod_4", "majority", "first"] = "parity"
    """Label of the marked bits: their parity, the number of ones modulo 4, whether more than half are ones, or the
    first of them.  Each needs all k marks; one changed bit always changes the first two, seldom the others."""
    begin: bool = False
    """Whether a token `^` stands before the pairs.  A head can weigh it against the marked bits, and so count them."""

    coupling_levels = (Level("pair"),)

    def __post_init__(self) -> None:
        if self.k.low < 1:
            raise ValueError(f"sparse_parity.k must be at least 1, got {self.k}")

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        numbers = ("0", "1", "2", "3") if self.label == "sum_mod_4" else ("0", "1")
        return ("_", "-", "+", *numbers, *(("^",) if self.begin else ()))

    def check_length(self, length: int) -> None:
        _check_pairs(self.name, self.k, length)

    def max_tokens(self, length: int) -> int:
        return length + 1 + self._first

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        k = self.k.draw(draws, "k", at_most=length // 2)
        bit, mark = _draw_pairs(length, k, draws, max_length)
        tokens = pad(_interleave(bit, mark), (self._first, 1), value=len(self.vocabulary) - 1)
        prompt_tokens = length + self._first
        tokens.scatter_(1, prompt_tokens[:, None], _ZERO + self._label(bit, mark)[:, None])
        return build_sample(tokens, length, prompt_tokens, num_tokens=prompt_tokens + 1)

    def _label(self, bit: Int[Tensor, "b pairs"], mark: Bool[Tensor, "b pairs"]) -> Int[Tensor, "b"]:
        ones, marked = (bit * mark).sum(1), mark.sum(1)
        if self.label == "majority":
            return (2 * ones > marked).long()
        if self.label == "first":
            return bit.gather(1, mark.long().argmax(1, keepdim=True))[:, 0]
        return ones % (4 if self.label == "sum_mod_4" else 2)

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = sample.tokens[row, self._first : int(sample.prompt_tokens[row])].tolist()
        marked = [bit - _ZERO for mark, bit in zip(prompt[::2], prompt[1::2], strict=True) if mark == _ON]
        answers = {
            "parity": sum(marked) % 2,
            "sum_mod_4": sum(marked) % 4,
            "majority": int(marked.count(1) > marked.count(0)),
            "first": marked[0] if marked else 0,
        }
        return [_ZERO + answers[self.label]]

    def sparsity(self, length: int) -> int:
        return 2 * min(self.k.high, length // 2)  # a mark and its bit are two tokens

    def depends_on(self, sample: Sample) -> Bool[Tensor, "b t t"]:
        at_marks = self._prompt_tokens(sample) == _ON
        needed = at_marks | at_marks.roll(1, dims=1)  # a mark and the bit after it
        return sample.answer[:, :, None] & needed[:, None, :]

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        # exactly k marks are on, so given which ones, only the unmarked bits are free
        fresh = _ZERO + draws.below("redraw", 2, sample.tokens.shape[1])
        prompt = self._prompt_tokens(sample)
        free = (prompt >= _ZERO) & (prompt.roll(1, dims=1) == _OFF)
        return replace(sample, tokens=torch.where(free, fresh, sample.tokens))

    def coupling(self, sample: Sample, form: Form) -> Int[Tensor, "b g t"]:
        # ours: a bit shares its ID with the mark that it must read, so published and aligned are one
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        ids = ((index - self._first) // 2 + 1).expand_as(sample.tokens)
        return ids.masked_fill(index >= sample.prompt_tokens[:, None], 0)[:, None]

    def parse(self, text: str) -> list[int]:
        """The tokens of marks and bits; `^` need not be typed."""
        pairs = text.replace(" ", "").removeprefix("^" if self.begin else "")
        tokens = super().parse(" ".join("^" * self._first + pairs))
        marks, bits = tokens[self._first :: 2], tokens[self._first + 1 :: 2]
        if not {*marks} <= {_OFF, _ON} or not {*bits} <= {_ZERO, _ZERO + 1}:
            raise BadInput(f"sparse_parity: marks and bits alternate, as in -1+0, got {text!r}")
        return tokens

    def prompt_length(self, tokens: Sequence[int]) -> int:
        length = len(tokens) - self._first
        self.check_length(length)
        return length

    @property
    def _first(self) -> int:
        """The index of the first mark."""
        return int(self.begin)

    @staticmethod
    def _prompt_tokens(sample: Sample) -> Tensor:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return sample.tokens.masked_fill(index >= sample.prompt_tokens[:, None], 0)


@register("task", "sparse_parity_scratchpad")
@dataclass(frozen=True, kw_only=True)
class SparseParityScratchpad(Worksheet):
    """Running parities of the marked bits.  - 1 + 0 + 1 - 0 ; =  ->  0 1 .

    Pairs and marks are drawn as for `sparse_parity`, and `length` counts their tokens.  Step j needs step j-1 and the
    j-th marked pair: 3-sparse for every k.  The mark `;` stands where a marked pair k+1 would, for the stop token.
    Coupling: step j shares the ID of the j-th marked pair (published), or the token before it does (aligned).
    Joins sparse parity and the scratchpads of Golowich et al. (ICML 2025); ours.
    """

    k: Span = Span(1, 8)
    """How many marks are on: a number, or a range such as 1..8."""
    numbering: Literal["marked", "all"] = "marked"
    """Pairs with an ID: the marked ones, counted, so that the next mark is the next ID; or all, so that a step must
    find the next mark among the pairs between."""

    vocabulary = ("_", "-", "+", "0", "1", ";", "=", ".")
    stop_token = _STOP
    coupling_levels = (Level("pair"),)
    ending = (";", "=")

    def __post_init__(self) -> None:
        if self.k.low < 1:
            raise ValueError(f"sparse_parity_scratchpad.k must be at least 1, got {self.k}")

    def check_length(self, length: int) -> None:
        _check_pairs(self.name, self.k, length)

    def max_tokens(self, length: int) -> int:
        return length + 2 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return min(self.k.high, length // 2) + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        k = self.k.draw(draws, "k", at_most=length // 2)
        bit, mark = _draw_pairs(length, k, draws, max_length)
        return self._assemble(length, k, bit, mark, self.max_tokens(max_length))

    def redraw(self, sample: Sample, draws: Draws) -> Sample:
        pairs = sample.tokens[:, : int(sample.length.max())].reshape(len(sample.tokens), -1, 2)
        inside = torch.arange(pairs.shape[1], device=pairs.device) < sample.length[:, None] // 2
        mark = (pairs[..., 0] == _ON) & inside
        bit = torch.where(mark, pairs[..., 1] - _ZERO, draws.below("redraw", 2, pairs.shape[1]))
        return self._assemble(sample.length, mark.sum(1), bit, mark, sample.tokens.shape[1])

    @staticmethod
    def _assemble(
        length: Int[Tensor, "b"],
        k: Int[Tensor, "b"],
        bit: Int[Tensor, "b pairs"],
        mark: Bool[Tensor, "b pairs"],
        width: int,
    ) -> Sample:
        in_order = (~mark).long().argsort(dim=1, stable=True)  # the marked pairs first
        running = bit.gather(1, in_order).cumsum(1) & 1
        parts: list[Part] = [
            (_interleave(bit, mark), length),
            (_END, 1),
            (_EQUALS, 1),
            (_ZERO + running, k),
            (_STOP, 1),
        ]
        return build_sample(join(parts, width), length, prompt_tokens=length + 2, num_tokens=length + k + 3)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        marks, bits = prompt[:-2:2], prompt[1:-2:2]
        if [*prompt[-2:]] != [";", "="] or not {*marks} <= {"-", "+"} or not {*bits} <= {"0", "1"}:
            raise BadInput(f"{self.name}: marks and bits alternate, as in -1+0, got {' '.join(prompt)!r}")
        self.check_length(len(prompt) - 2)
        answer, ones = [], 0
        for mark, bit in zip(marks, bits, strict=True):
            if mark == "+":
                ones += bit == "1"
                answer.append(str(ones % 2))
        return answer

    def sparsity(self, length: int) -> int:
        return 3  # the running parity, a mark and its bit

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        step, index, place = self.step(sample), self._index(sample), self._place_of_step(sample)
        is_stop = place == sample.length[:, None]
        previous = torch.where((step > 0) & ~is_stop, index, 0) - 1
        return torch.stack([place, torch.where(is_stop, -1, place + 1), previous], dim=2)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        """Count from 1, which is the sign's; a pair and a step have the same number."""
        step, index, place = self.step(sample), self._index(sample), self._place_of_step(sample)
        at_mark = self._at_marks(sample)
        in_pairs = index < sample.length[:, None]
        if self.numbering == "marked":
            rank = at_mark.cumsum(1)
            of_prompt = (rank + 1).masked_fill(in_pairs & ~(at_mark | at_mark.roll(1, dims=1)), 0)
            of_prompt = torch.where(in_pairs, of_prompt, rank + 2)
            of_step = step + 2
        else:
            of_prompt, of_step = index // 2 + 2, place // 2 + 2
        ids = torch.where(step >= 0, of_step, of_prompt.masked_fill(step == -1, 1))
        beyond = step > at_mark.sum(1, keepdim=True)  # where decoding has room for more
        return ids.masked_fill(beyond, 0)[:, None]

    def _place_of_step(self, sample: Sample) -> Int[Tensor, "b t"]:
        """Return the index of the mark that each step reads, or of the end mark."""
        index, step = self._index(sample), self.step(sample)
        at_mark = self._at_marks(sample)
        ordered = torch.where(at_mark, index, sample.length[:, None]).sort(dim=1).values  # marks first, then the end
        return ordered.gather(1, step.clamp(0, step.shape[1] - 1))

    def _at_marks(self, sample: Sample) -> Bool[Tensor, "b t"]:
        return (sample.tokens == _ON) & (self._index(sample) < sample.length[:, None])

    @staticmethod
    def _index(sample: Sample) -> Int[Tensor, "b t"]:
        return torch.arange(sample.tokens.shape[1], device=sample.tokens.device).expand_as(sample.tokens)

    def prompt_length(self, tokens: Sequence[int]) -> int:
        self.check_length(len(tokens) - 2)
        return len(tokens) - 2
