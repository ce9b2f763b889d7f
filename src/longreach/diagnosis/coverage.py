"""How well training covers what longer samples need, under a scheme of position IDs.

What an encoding of IDs lets a query see of a token is the difference of their IDs.  A needed token at a difference
that training never showed is *uncovered*: whatever a model does there, no training error speaks of it.  The same
holds, more mildly, for tokens that are not needed: at an untrained difference nothing has taught a model to pass over
them.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from longreach.diagnosis.estimates import Estimate, Tally, rate_ratio, share
from longreach.diagnosis.needs import Needs, most

_EXACT = 16
_PER_OCTAVE = 8
_LEVEL = -7046029254386353131  # odd, so that multiplying loses nothing, and large: levels do not mix
_ENOUGH = 5  # samples with a kind that a ratio is computed from
_SOME, _PAIRS = 200, 2000  # queries, and needed tokens of theirs, that are compared with all other tokens


def kinds(needs: Needs, ids: Int[Tensor, "b g t"]) -> Int[Tensor, "n"]:
    """A number for each pair: the differences of IDs at all levels, those above 16 in eighths of octaves."""
    code = torch.zeros_like(needs.row)
    for level in ids.unbind(1):
        here, there = level[needs.row, needs.query], level[needs.row, needs.key]
        # the reserved ID is a place of its own: the query's, the token's, or both are there
        reserved = (here > 0).long() + 2 * (there > 0).long()
        code = code * _LEVEL + torch.where((here > 0) & (there > 0), _bucket(there - here), reserved)
    return code


def _bucket(difference: Tensor) -> Tensor:
    """A number from 3 on."""
    size = difference.abs()
    octaves = (size.clamp(min=1).double() / _EXACT).log2() * _PER_OCTAVE
    bucket = torch.where(size <= _EXACT, size, _EXACT + 1 + octaves.long())
    return 3 + 2 * bucket + (difference < 0).long()


@dataclass(frozen=True)
class Counts:
    """How often each kind occurs, and in how many samples."""

    kinds: Int[Tensor, "n"]
    count: Int[Tensor, "n"]
    squares: Int[Tensor, "n"]
    rows: Int[Tensor, "n"]

    @classmethod
    def of(cls, kind: Int[Tensor, "m"], row: Int[Tensor, "m"]) -> "Counts":
        found, place = torch.unique(kind, return_inverse=True)
        width = int(row.max()) + 1 if len(row) else 1
        cell, count = torch.unique(place * width + row, return_counts=True)
        which = cell // width
        zero = torch.zeros_like(found)
        add = [zero.index_add(0, which, values) for values in (count, count**2, torch.ones_like(count))]
        return cls(found, *add)

    def tally(self, number: int, samples: int) -> Tally:
        return Tally(int(self.count[number]), int(self.squares[number]), samples)


@dataclass(frozen=True)
class Shown:
    """What training shows: how often each kind is needed, and which kinds are seen at all."""

    needed: Counts
    seen: Int[Tensor, "m"]
    queries: int
    samples: int

    @classmethod
    def by(cls, needs: Needs, relabelled: list[Int[Tensor, "b g t"]]) -> "Shown":
        """By the same samples under several draws of IDs."""
        kind = torch.cat([kinds(needs, ids) for ids in relabelled])
        seen = torch.cat([torch.unique(kinds(needs.everything, ids)) for ids in relabelled])
        counts = Counts.of(kind, needs.row.repeat(len(relabelled)))
        return cls(counts, torch.unique(seen), len(needs.queries[0]) * len(relabelled), len(needs.sample.tokens))


@dataclass(frozen=True)
class SchemeCoverage:
    """What a trained range says of a longer length."""

    uncovered: Estimate
    """Share of samples with a need that training never showed."""
    uncovered_needs: float
    """Share of the needs themselves."""
    kappa: Estimate | None
    """How much more often than in training the worst of the covered kinds occurs, per answer token."""
    strangers: float
    """Share of all earlier tokens, needed or not, that stand at a difference which training never showed."""
    id_span: float
    """The largest difference of IDs between a query and what it needs, which nine in ten do not exceed."""
    alike: float
    """How many other earlier tokens have the IDs of a needed one, on average: what IDs do not tell apart, tokens must.
    A scheme that tells nothing apart covers everything."""
    unseen: float
    """How many kinds were needed in one training sample only, per sample: about as many new ones would the next sample
    bring (Good and Turing).  Where it is not small, kinds look uncovered because too few samples were drawn."""


def cover(shown: Shown, needs: Needs, ids: Int[Tensor, "b g t"]) -> SchemeCoverage:
    """Coverage of long samples by those of training."""
    asked = kinds(needs, ids)
    new = ~torch.isin(asked, shown.needed.kinds)
    return SchemeCoverage(
        share(len(torch.unique(needs.row[new])), len(ids)),
        float(new.double().mean()) if len(new) else 0.0,
        _worst(Counts.of(asked[~new], needs.row[~new]), len(needs.queries[0]), len(ids), shown),
        float((~torch.isin(kinds(needs.everything, ids), shown.seen)).double().mean()),
        _id_span(needs, ids),
        _alike(needs, ids),
        int((shown.needed.rows == 1).sum()) / shown.samples,
    )


def _id_span(needs: Needs, ids: Int[Tensor, "b g t"]) -> float:
    apart = (ids[needs.row, :, needs.query] - ids[needs.row, :, needs.key]).abs().amax(1)
    widest = torch.zeros_like(needs.queries[0]).scatter_reduce(0, needs.number, apart, "amax")
    return float(most(widest.double()))


def _alike(needs: Needs, ids: Int[Tensor, "b g t"]) -> float:
    """From some of the queries."""
    asked = torch.unique(needs.number)
    chosen = asked[:: max(1, len(asked) // _SOME)].contiguous()
    pair = torch.isin(needs.number, chosen).nonzero()[:, 0]
    if not len(pair):
        return 0.0
    needed = torch.zeros(len(chosen), ids.shape[2], dtype=torch.bool)
    needed[torch.searchsorted(chosen, needs.number[pair]), needs.key[pair]] = True
    pair = pair[:: max(1, len(pair) // _PAIRS)]  # where each query needs thousands
    row, query, key = needs.row[pair], needs.query[pair], needs.key[pair]
    which = torch.searchsorted(chosen, needs.number[pair])
    same = (ids[row] == ids[row, :, key][..., None]).all(1)
    others = same & (torch.arange(ids.shape[2]) <= query[:, None]) & ~needed[which]
    return float(others.sum(1).double().mean())


def _worst(asked: Counts, queries: int, samples: int, shown: Shown) -> Estimate | None:
    """The largest ratio, as far as one can be sure of it: few needs of a kind make large ratios by chance."""
    trained = torch.searchsorted(shown.needed.kinds, asked.kinds)
    known = (asked.rows >= _ENOUGH) & (shown.needed.rows[trained] >= _ENOUGH)
    ratios = [
        rate_ratio(
            asked.tally(number, samples),
            queries,
            shown.needed.tally(int(trained[number]), shown.samples),
            shown.queries,
        )
        for number in known.nonzero()[:, 0].tolist()
    ]
    return max(ratios, key=lambda ratio: ratio.low, default=None)
