"""Run by test_by_token.py in a process of its own, for shape checks cannot be compiled: prints how far gradients of
compiled layers that begin with the vocabulary are from those of plain layers that begin with every token."""

import json
import sys

import torch
from losses import token_losses

from longreach.api import Copy, Sequential, TransformerConfig, build_model
from longreach.engine.plan import choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.seeding import stream

errors = {}
for models in (1, 2):
    task, numbers = Copy(), torch.arange(6 * models)
    sample = task.sample(torch.full_like(numbers, 9), stream(0, "compiled", numbers), 9)
    ids = Sequential().evaluation_ids(task, sample)
    config = TransformerConfig(layers=2, width=32, heads=2)
    members = [build_model(config, len(task.vocabulary), seed) for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    plan = choose(model, ExecutionConfig(compile=True), "cpu")
    assert plan.used[:3] == ("first_layer_by_token", "embedding_gradient", "compiled_layers")
    found = []
    for one in (model, plan.training_model(model)):
        loss = token_losses(one, sample, ids).sum()
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    apart = [(a - b).abs().max() / a.abs().max() for a, b in zip(*found, strict=True)]
    errors[models] = float(torch.stack(apart).nan_to_num(nan=torch.inf).max())
json.dump(errors, sys.stdout)
