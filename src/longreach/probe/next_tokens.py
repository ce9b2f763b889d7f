"""Loss by length of any language model that can be probed."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.evaluation import Predict
from longreach.probe.language_model import LanguageModel

_LOGITS = 1 << 27
"""Scores of tokens that are held at once."""


def predicting(model: LanguageModel) -> Predict:
    """A function that predicts the last tokens of windows, all before them being seen."""

    @torch.no_grad()
    def predict(tokens: Int[Tensor, "b t"], last: int) -> tuple[Float[Tensor, "b last"], Bool[Tensor, "b last"]]:
        read = tokens[:, :-1]
        positions = torch.arange(read.shape[1], device=tokens.device).expand_as(read)
        places = torch.arange(read.shape[1] - last, read.shape[1], device=tokens.device)
        rows = max(1, _LOGITS // (last * model.vocabulary_size))
        size = max(1, _LOGITS // (rows * model.vocabulary_size))  # one row may be too long to be held as a whole
        nats, right = [], []
        for first in range(0, len(tokens), rows):
            some = slice(first, first + rows)
            wanted = torch.split(tokens[some, 1:][:, places], size, dim=1)
            scores = model.scores_in_parts(read[some], positions[some], places, size)
            judged = [_judge(*part) for part in zip(scores, wanted, strict=True)]
            nats.append(torch.cat([loss for loss, _ in judged], dim=1))
            right.append(torch.cat([hit for _, hit in judged], dim=1))
        return torch.cat(nats), torch.cat(right)

    return predict


def _judge(
    scores: Float[Tensor, "b a v"], wanted: Int[Tensor, "b a"]
) -> tuple[Float[Tensor, "b a"], Bool[Tensor, "b a"]]:
    """The loss of each token that came, and whether it was the likeliest."""
    likely = scores.float().log_softmax(-1)
    return -likely.gather(2, wanted[..., None])[..., 0], likely.argmax(-1) == wanted
