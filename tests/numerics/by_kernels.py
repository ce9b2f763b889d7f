"""Small models whose layers are computed by kernels, on a CPU through Triton's interpreter."""

from contextlib import contextmanager
from unittest.mock import patch

import torch

from longreach.api import Copy, Sequential, build_model
from longreach.engine import fused
from longreach.engine.fused import run_fused
from longreach.engine.stacking import stack_models
from longreach.model import block, transformer
from longreach.model.block import SelfAttention
from longreach.model.transformer import Transformer
from longreach.seeding import stream


def small_model(config, models):
    """One, or a stack of them, with samples and their IDs."""
    task = Copy()
    numbers = torch.arange(3 * models)
    sample = task.sample(torch.full_like(numbers, 7), stream(0, "check", numbers), 7)
    members = [build_model(config, len(task.vocabulary), seed) for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    return model, sample, Sequential().evaluation_ids(task, sample)


@contextmanager
def by_kernels(kernel, by_token, dtype=torch.float32, fuses=True):
    """The kernel is that of attention: for short sequences, the one that turns, or none.  By token: the first layer is
    that of the vocabulary."""
    in_this_precision = lambda *args: run_fused(*args[:-2], dtype, torch.float32)  # noqa: E731
    with (
        patch.object(Transformer, "_fuses", lambda *_: fuses),
        patch.object(fused, "run_fused", in_this_precision),
        patch.object(transformer, "pays", lambda *_: by_token),
        patch.object(SelfAttention, "fits_one_kernel", lambda *_: kernel == "short"),
        patch.object(block, "_may_launch", lambda *_: kernel == "turning"),
    ):
        yield


def by_plain_layers():
    return by_kernels("none", by_token=False, fuses=False)
