"""Sparse parity: the paper's own task for "the fewer tokens matter, the farther a model reaches"."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.config.registry import register
from longreach.config.spans import Span
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Form, Level, Sample, Task, build_sample

_OFF, _ON, _ZERO = 1, 2, 3  # the bit 1 is _ZERO + 1


@register("task", "sparse_parity")
@dataclass(frozen=True, kw_only=True)
class SparseParity(Task):
    """Parity of the marked bits.  Marks and bits alternate:  - 1 + 0 + 1 - 0  ->  1.

    `length` counts the input tokens, two for each pair, so it is even.  Exactly k marks are on, at a
    uniformly random k-subset of the pairs, where k is uniform over its range cut at the number of pairs.
    The answer is one token, predicted at the last input token: there is no separator and no stop token.
    From Golowich et al. (ICML 2025), section on sparse parity; this layout of D_sp is our reading.
    """

    paper = "Golowich et al., ICML 2025"

    k: Span = Span(1, 8)
    """How many marks are on: a number, or a range such as 1..8."""

    vocabulary = ("_", "-", "+", "0", "1")
    coupling_levels = (Level("pair"),)

    def __post_init__(self) -> None:
        if self.k.low < 1:
            raise ValueError(f"sparse_parity.k must be at least 1, got {self.k}")

    def check_length(self, length: int) -> None:
        if length < 2 or length % 2:
            raise BadInput(f"sparse_parity: length counts marks and bits, so it must be even, got {length}")
        if self.k.low > length // 2:
            raise BadInput(f"sparse_parity: length {length} has {length // 2} pairs, too few for k={self.k.low}")

    def max_tokens(self, length: int) -> int:
        return length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        pairs, widest = length // 2, max_length // 2
        k = self.k.draw(draws, "k", at_most=pairs)
        # one number per pair serves twice: its last bit is the bit, the others order the pairs
        number = draws.bits("pair", widest)
        bit = number & 1
        order = number >> 1
        if widest > 1:
            beyond = torch.arange(widest, device=length.device) >= pairs[:, None]
            order = order.masked_fill(beyond, torch.iinfo(torch.int64).max)
        kth_smallest = order.sort(dim=1).values.gather(1, k[:, None] - 1)
        mark = order <= kth_smallest
        parity = (bit * mark).sum(1) & 1

        tokens = torch.empty(len(length), max_length + 1, dtype=torch.long, device=length.device)
        tokens[:, 0:-1:2] = _OFF + mark.long()
        tokens[:, 1:-1:2] = _ZERO + bit
        tokens.scatter_(1, length[:, None], _ZERO + parity[:, None])
        return build_sample(tokens, length, prompt_tokens=length, num_tokens=length + 1)

    def solve(self, sample: Sample, row: int) -> list[int]:
        prompt = sample.tokens[row, : int(sample.prompt_tokens[row])].tolist()
        marked = [bit for mark, bit in zip(prompt[::2], prompt[1::2], strict=True) if mark == _ON]
        return [_ZERO + sum(bit == _ZERO + 1 for bit in marked) % 2]

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
        ids = (index // 2 + 1).expand_as(sample.tokens)
        return ids.masked_fill(index >= sample.prompt_tokens[:, None], 0)[:, None]

    def parse(self, text: str) -> list[int]:
        tokens = super().parse(" ".join(text.replace(" ", "")))
        if any(token >= _ZERO for token in tokens[::2]) or any(token < _ZERO for token in tokens[1::2]):
            raise BadInput(f"sparse_parity: marks and bits alternate, as in -1+0, got {text!r}")
        return tokens

    def prompt_length(self, tokens: Sequence[int]) -> int:
        self.check_length(len(tokens))
        return len(tokens)

    @staticmethod
    def _prompt_tokens(sample: Sample) -> Tensor:
        index = torch.arange(sample.tokens.shape[1], device=sample.tokens.device)
        return sample.tokens.masked_fill(index >= sample.prompt_tokens[:, None], 0)
