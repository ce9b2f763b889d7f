"""Loss by length of any language model that can be probed."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.evaluate import Predict
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
        size = max(1, _LOGITS // (last * model.vocabulary_size))
        nats, right = [], []
        for start in range(0, len(tokens), size):
            rows = slice(start, start + size)
            wanted = tokens[rows, 1:][:, places]
            scores = model.scores(read[rows], positions[rows], None, places).float().log_softmax(-1)
            nats.append(-scores.gather(2, wanted[..., None])[..., 0])
            right.append(scores.argmax(-1) == wanted)
        return torch.cat(nats), torch.cat(right)

    return predict
