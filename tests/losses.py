"""Losses of samples, for tests."""

import torch

from longreach.api import Copy
from longreach.objectives import Batch, resolve_objectives, terms
from longreach.seeding import stream


def losses(model, sample, ids, *objectives, task=None, draws=None, progress=0.0):
    """Return the losses [b] of each objective, listed or default, by its name."""
    draws = draws or stream(0, "losses", torch.arange(len(ids), device=ids.device))
    batch = Batch(sample, ids, draws, task or Copy())
    found = terms(resolve_objectives(objectives, model), model, batch, progress=progress)
    return {name: term.losses for name, term in found.items()}


def token_losses(model, sample, ids):
    return losses(model, sample, ids)["tokens"]
