"""Small models whose layers are computed by kernels, on a CPU through Triton's interpreter."""

import torch

from longreach.api import Copy, Sequential, build_model
from longreach.engine.layers import FastAttention, FastTransformer
from longreach.engine.plan import choose
from longreach.engine.stacking import stack_models
from longreach.engine.twins import Swap, make_twin
from longreach.execution import ExecutionConfig
from longreach.model.block import SelfAttention
from longreach.seeding import stream


def small_model(config, models, levels=1):
    """Return a model, or a stack of models, with samples and their IDs.

    The samples have enough tokens for a first layer by token.  Several tokens share an ID at the second level.
    """
    task = Copy()
    numbers = torch.arange(4 * models)
    sample = task.sample(torch.full_like(numbers, 7), stream(0, "check", numbers), 7)
    members = [build_model(config, len(task.vocabulary), seed, (0,) * levels) for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    ids = Sequential().evaluation_ids(task, sample)
    return model, sample, torch.cat([ids // (3 * level + 1) for level in range(levels)], dim=1)


def by_kernels(model, kernel="none", by_token=False, dtype=torch.float32):
    """Return a twin with fused layers in this precision; None leaves them out.

    `kernel` is that of attention: `short`, `rotary` or `none`.
    """
    own = {
        "by_token": by_token,
        "fused_in": dtype,
        "reads_states": choose(model, ExecutionConfig(), "cpu").reads_states,
    }
    attention = {"short": kernel == "short", "rotary": kernel == "rotary"}

    def swap(module):
        if module is model:
            return Swap(FastTransformer, own)
        return Swap(FastAttention, attention) if type(module) is SelfAttention else None

    return make_twin(model, swap)
