"""What a predictor reads: put another token in its place and see how much its predictions change."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.seeding import Draws

Predict = Callable[[Int[Tensor, "b t"], Int[Tensor, "b"]], Float[Tensor, "b a c"]]
"""Laws over the next token at the places that are asked about, from tokens and the rows that they are variants of."""

CHANGE = 0.2
"""A mean change of this much, in total variation, counts as influence."""

_FIRST, _ALL = 4, 16  # replacements for every token, and for those that showed any effect


@torch.no_grad()
def influence(
    predict: Predict, tokens: Int[Tensor, "b t"], draws: Draws, batch_tokens: int = 1 << 16
) -> Float[Tensor, "b a t"]:
    """The mean change of a prediction, in total variation, when a token is drawn again.

    Samples must be laid out alike: the new token is the one that stands at the same place in another sample.  Only
    those that differ are tried, and the mean is that share of the samples times theirs; so a token that does nothing
    hardly counts where one in ten others in its place would do harm.  Where all samples have the same token there is
    nothing to try, and no influence is found.
    """
    batch, width = tokens.shape
    plain = predict(tokens, torch.arange(batch))
    changes = torch.zeros(_ALL, *plain.shape[:2], width)
    promising = torch.ones(batch, width, dtype=torch.bool)
    for number in range(_ALL):
        if number == _FIRST:
            promising = (changes[:_FIRST] > CHANGE / 2).any(0).any(1)
        other = _other_tokens(tokens, draws.child(str(number)))
        row, place = ((other != tokens) & promising).nonzero(as_tuple=True)
        for part in torch.split(torch.arange(len(row)), max(1, batch_tokens // width)):
            at, column = row[part], place[part]
            varied = tokens[at].scatter(1, column[:, None], other[at, column][:, None])
            changes[number, at, :, column] = (predict(varied, at) - plain[at]).abs().sum(2).float() / 2
    tried = torch.where(promising, _ALL, _FIRST)[:, None]
    differs = (tokens[:, None] != tokens[None]).double().sum(1)[:, None] / max(1, batch - 1)
    return (changes.sum(0) / tried * differs).float()


def _other_tokens(tokens: Int[Tensor, "b t"], draws: Draws) -> Int[Tensor, "b t"]:
    """At each place the token of some sample that has another one there, or the same where there is none."""
    batch = len(tokens)
    differs: Bool[Tensor, "b t b"] = tokens[:, :, None] != tokens.T[None]
    lot = draws.bits("other", tokens.shape[1] * batch).view(batch, tokens.shape[1], batch)
    chosen = lot.masked_fill(~differs, torch.iinfo(torch.int64).min).argmax(2)
    return torch.where(differs.any(2), tokens.T.expand(batch, -1, -1).gather(2, chosen[..., None])[..., 0], tokens)
