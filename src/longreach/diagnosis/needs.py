"""Which earlier tokens each answer token needs: how many, and how far away."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from longreach.diagnosis.estimates import Estimate, over_samples
from longreach.errors import BadInput
from longreach.objectives import token_targets
from longreach.seeding import stream
from longreach.tasks import Sample, Task

_PAIRS = 1 << 26  # pairs of tokens that are listed at a time
_MOST = 1 << 22  # needed tokens, of all samples together
_FEW = 8  # samples are kept whatever they need
_QUERIES = 4  # of each sample, where all that they see is listed


@dataclass(frozen=True, eq=False)
class Needs:
    """A batch of samples with the pairs (answer token, needed token)."""

    sample: Sample
    queries: tuple[Int[Tensor, "m"], Int[Tensor, "m"]]
    """Row and place of every answer token asked about, those that need nothing included, in order.  A place is where
    the token is predicted: the one before it."""
    row: Int[Tensor, "n"]
    """Of each pair."""
    query: Int[Tensor, "n"]
    """The place at which its answer token is predicted."""
    key: Int[Tensor, "n"]
    """The place of the needed token."""

    @classmethod
    def of(cls, sample: Sample, asked: Bool[Tensor, "b s"], needed: Bool[Tensor, "b s t"]) -> "Needs":
        """From the places that are asked about, and [row, place, j]: what is predicted there needs the token at j."""
        row, place = asked.nonzero(as_tuple=True)
        return cls(sample, (row, place), *(needed & asked[..., None]).nonzero(as_tuple=True))

    @cached_property
    def number(self) -> Int[Tensor, "n"]:
        """Which of the queries each pair belongs to."""
        row, place = self.queries
        width = self.sample.tokens.shape[1]
        return torch.searchsorted(row * width + place, self.row * width + self.query)

    def sizes(self) -> Int[Tensor, "m"]:
        """How many tokens each answer token needs."""
        return torch.bincount(self.number, minlength=len(self.queries[0]))

    def spans(self) -> Int[Tensor, "m"]:
        """The distance between the first and the last token that each answer token needs."""
        first = torch.full_like(self.queries[0], self.sample.tokens.shape[1])
        first = first.scatter_reduce(0, self.number, self.key, "amin")
        last = torch.full_like(first, -1).scatter_reduce(0, self.number, self.key, "amax")
        return (last - first).clamp(min=0)

    def distances(self) -> Int[Tensor, "m"]:
        """How far back the farthest of them is."""
        far = torch.zeros_like(self.queries[0])
        return far.scatter_reduce(0, self.number, self.query - self.key, "amax")

    def k(self) -> Estimate:
        """The median size."""
        return over_samples(self.sizes().double(), self.queries[0], torch.median)

    def span(self) -> Estimate:
        """The span that nine in ten do not exceed."""
        return over_samples(self.spans().double(), self.queries[0], most)

    def distance(self) -> Estimate:
        """The distance that nine in ten do not exceed."""
        return over_samples(self.distances().double(), self.queries[0], most)

    @cached_property
    def everything(self) -> "Needs":
        """All earlier tokens in place of the needed ones, for a few queries of each sample."""
        row, place = self.queries
        rank = torch.arange(len(row)) - torch.searchsorted(row, row)
        count = torch.bincount(row, minlength=len(self.sample.tokens))[row]
        few = rank * _QUERIES // count != (rank - 1) * _QUERIES // count
        row, place = row[few], place[few]
        key = torch.arange(self.sample.tokens.shape[1])
        number, seen = (key <= place[:, None]).nonzero(as_tuple=True)
        return Needs(self.sample, (row, place), row[number], place[number], seen)


def most(values: Tensor) -> Tensor:
    """What nine in ten do not exceed."""
    return values.kthvalue(int(0.9 * (len(values) - 1)) + 1).values


def check_size(task: Task, length: int) -> None:
    """Refuse a length at which who needs whom cannot be listed."""
    width = task.max_tokens(length)
    if width * width > _PAIRS:
        raise BadInput(
            f"length {length} has up to {width} tokens, too many to list who needs whom: at most {int(_PAIRS**0.5)}"
        )


def known_needs(task: Task, lengths: Int[Tensor, "b"], seed: int) -> Needs:
    """As the task itself says, one sample for each length, or fewer where they need very much."""
    longest = int(lengths.max())
    check_size(task, longest)
    draws = stream(seed, f"diagnose/{longest}", torch.arange(len(lengths)))
    sample = task.sample(lengths, draws, longest)
    size = max(1, _PAIRS // task.max_tokens(longest) ** 2 // 4)
    parts: list[Needs] = []
    for start in range(0, len(lengths), size):
        if start >= _FEW and sum(len(part.row) for part in parts) > _MOST:
            break
        some = sample.rows(start, start + size)
        parts.append(Needs.of(some, token_targets(some), task.depends_on(some)[:, 1:]))
    return join(parts)


def join(parts: Sequence[Needs]) -> Needs:
    """Several batches of equal width as one."""
    starts = list(itertools.accumulate((len(part.sample.tokens) for part in parts), initial=0))
    sample = parts[0].sample
    if len(parts) > 1:
        names = [field.name for field in dataclasses.fields(Sample) if field.name != "hidden"]
        columns = {name: torch.cat([getattr(part.sample, name) for part in parts]) for name in names}
        hidden = {name: torch.cat([part.sample.hidden[name] for part in parts]) for name in sample.hidden}
        sample = Sample(**columns, hidden=hidden)
    shifted = list(zip(parts, starts, strict=False))
    return Needs(
        sample,
        (
            torch.cat([part.queries[0] + start for part, start in shifted]),
            torch.cat([part.queries[1] for part in parts]),
        ),
        torch.cat([part.row + start for part, start in shifted]),
        torch.cat([part.query for part in parts]),
        torch.cat([part.key for part in parts]),
    )
