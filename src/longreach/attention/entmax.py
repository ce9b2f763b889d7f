"""Weights that can be exactly zero: sparsemax and 1.5-entmax."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longreach.attention.base import Attention, GrowingScores, ScaledSoftmax, ScaledSoftmaxConfig
from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.positions.encodings import Shape

_UNSEEN = -1e4
"""Stands for minus infinity, which would be squared; no score that counts is near it."""


@register("attention", "entmax")
@dataclass(frozen=True, kw_only=True)
class EntmaxConfig(ScaledSoftmaxConfig):
    """Keys with scores far below the best have no weight at all (Peters et al., ACL 2019).

    Scores grow as in `scaled_softmax`; `asentmax` lets the growth depend on the state too.  Exact, with exact
    gradients, through the `entmax` package; on a GPU, from 1,024 tokens on, nearly so by `adasplash`, if installed.
    """

    paper = "Peters et al., ACL 2019; Martins and Astudillo, ICML 2016"

    alpha: float = 1.5
    """1.5 is entmax-1.5, 2 is sparsemax (Martins and Astudillo, ICML 2016)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha not in (1.5, 2):
            raise ValueError(f"entmax.alpha must be 1.5 or 2, got {self.alpha}")

    def build(self, shape: Shape) -> Attention:
        return Entmax(shape.heads, self)


class SparseWeights(GrowingScores):
    """Base of attentions with weights that can be zero."""

    fused = False
    config: "EntmaxConfig"

    def __init__(self, heads: int, config: "EntmaxConfig") -> None:
        super().__init__(heads, config)
        self.sparse_weights = sparse_weights(config.alpha)

    def weigh(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        return self.sparse_weights(scores)


class Entmax(SparseWeights, ScaledSoftmax):
    """Scores grow as in scaled softmax."""


def sparse_weights(alpha: float) -> Callable[[Float[Tensor, "b h q k"]], Float[Tensor, "b h q k"]]:
    """The map from scores to weights, by the package made for it."""
    try:
        from entmax import entmax15, sparsemax  # type: ignore[import-untyped]
    except ImportError as error:
        raise BadInput("attention entmax needs the package entmax: pip install entmax") from error
    of_package = sparsemax if alpha == 2 else entmax15

    def weigh(scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        weights: Tensor = of_package(scores.masked_fill(scores == -torch.inf, _UNSEEN), dim=-1)
        return weights

    return weigh
