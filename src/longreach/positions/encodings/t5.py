"""Buckets of distances with a learned bias each (Raffel et al., JMLR 2020)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longreach.config import Size
from longreach.config.registry import register
from longreach.positions.encodings.base import BiasEncoding, Encoding, EncodingConfig, Shape, sum_over_levels
from longreach.positions.encodings.pairs import Pair, PairBias, adds_in_any_order, in_copies, pairs_over_levels


@register("encoding", "t5")
@dataclass(frozen=True, kw_only=True)
class T5Config(EncodingConfig):
    """A bias per head for each bucket of distances: small ones have a bucket each, larger ones share on a log scale.

    As in T5's decoder, a key whose ID is ahead of the query's counts as distance 0; with coupled IDs there are such
    keys, and `both_ways` gives them half of the buckets, as in T5's encoder.
    """

    paper = "Raffel et al., JMLR 2020"

    buckets: Size = 32
    """Number of buckets."""
    max_distance: int = 128
    """From this distance on all share the last bucket."""
    both_ways: bool = False
    """Whether IDs ahead have buckets of their own."""

    def __post_init__(self) -> None:
        if self.buckets < (4 if self.both_ways else 2) or self.buckets % (4 if self.both_ways else 2):
            raise ValueError(f"t5.buckets must be even (both ways: divisible by 4), got {self.buckets}")
        if self.max_distance <= self.buckets:
            raise ValueError(f"t5.max_distance={self.max_distance} must be above {self.buckets}, the buckets")

    def build(self, shape: Shape) -> Encoding:
        return T5(shape, self)


class T5(BiasEncoding):
    def __init__(self, shape: Shape, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.tables = nn.ModuleList([nn.Embedding(config.buckets, shape.heads) for _ in range(shape.levels)])

    def bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> Float[Tensor, "b h q k"]:
        def of_level(distance: Tensor, level: int) -> Tensor:
            biases: Tensor = self.tables[level](bucket(distance, self.config))
            return biases.permute(0, 3, 1, 2)

        return sum_over_levels(query_ids, key_ids, of_level)

    def pair_bias(self, query_ids: Int[Tensor, "b g q"], key_ids: Int[Tensor, "b g k"]) -> PairBias | None:
        weights = [table.get_parameter("weight") for table in self.tables]
        stacked = weights[0].dim() > 2  # each of several models has its own tables
        if stacked or (self.learns and not adds_in_any_order()):
            return None
        far = self.config.max_distance
        # looked up, for logarithms that differ in the last bit would put a distance into another bucket
        buckets = bucket(torch.arange(-far, far + 1, device=query_ids.device), self.config)
        tables = [in_copies(weight.T) for weight in weights]

        def of_level(pair: Pair, level: int) -> Tensor:
            number = buckets[pair.distance.clamp(-far, far) + far]
            return tables[level][pair.copy, pair.head, number]

        return pairs_over_levels(query_ids, key_ids, of_level)


def bucket(distance: Int[Tensor, "*n"], config: T5Config) -> Int[Tensor, "*n"]:
    """Of a query's ID minus a key's."""
    count, first = config.buckets, torch.zeros_like(distance)
    if config.both_ways:
        count //= 2
        first = torch.where(distance < 0, count, 0)
        distance = distance.abs()
    distance = distance.clamp(min=0)
    exact = count // 2
    scale = (count - exact) / math.log(config.max_distance / exact)
    shared = exact + ((distance.clamp(min=1).float() / exact).log() * scale).long()
    return first + torch.where(distance < exact, distance, shared.clamp(max=count - 1))
