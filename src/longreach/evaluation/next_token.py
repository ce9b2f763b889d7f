"""How likely a model of ours finds the next tokens of a text."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longreach.evaluation.context import Predict
from longreach.model import Model, at_places
from longreach.positions.ids import IdPolicy
from longreach.seeding import stream
from longreach.tasks import Task, build_sample

_LOGITS = 1 << 27
"""Scores of tokens that are held at once."""


def next_tokens(model: Model, task: Task, policy: IdPolicy, shift: int = 0, seed: int = 0) -> Predict:
    """Return a function that predicts the last tokens of windows, in fp32, with the policy's test IDs.

    Where the policy draws them, they are a function of `seed` and of the window's tokens: the same in every batch.
    """

    @torch.no_grad()
    def predict(tokens: Int[Tensor, "b t"], last: int) -> tuple[Float[Tensor, "b last"], Bool[Tensor, "b last"]]:
        sizes = torch.full_like(tokens[:, 0], tokens.shape[1])
        draws = stream(seed, "test ids", _fingerprint(tokens)) if policy.draws_test_ids else None
        ids = policy.evaluation_ids(task, build_sample(tokens, sizes, torch.ones_like(sizes), sizes), draws) + shift
        model.check_ids(ids)
        read = tokens[:, :-1]
        places = torch.arange(read.shape[1] - last, read.shape[1], device=tokens.device).expand(len(tokens), last)
        hidden = model(read, ids[:, :, :-1], at=None if model.looks_back else places)
        past = model.past(hidden, read) if model.looks_back else None
        if past is not None:
            hidden = at_places(hidden, places)
        nats, right = [], []
        size = max(1, _LOGITS // (len(tokens) * len(model.embed.weight)))
        for start in range(0, last, size):
            part = slice(start, start + size)
            wanted = tokens[:, 1:].gather(1, places[:, part])
            scores = model.logits(hidden[:, part], places[:, part] + 1, past).float().log_softmax(-1)
            nats.append(-scores.gather(2, wanted[..., None])[..., 0])
            right.append(scores.argmax(-1) == wanted)
        return torch.cat(nats, dim=1), torch.cat(right, dim=1)

    return predict


def _fingerprint(tokens: Int[Tensor, "b t"]) -> Int[Tensor, "b"]:
    """Return a 64-bit hash of each row."""
    weights = stream(0, "window", torch.arange(tokens.shape[1], device=tokens.device)).key
    return (tokens * weights).sum(1)
