"""Run by test_engine_on_gpu.py in a process of its own: prints how far the engine and plain autocast in bf16 are from
fp32, on average over the loss and its gradients."""

import itertools
import json
import sys
from functools import partial

import torch
from losses import token_losses

from longreach.api import (
    Copy,
    LlamaConfig,
    ScaledSoftmaxConfig,
    Sequential,
    SoftmaxConfig,
    TransformerConfig,
    build_model,
)
from longreach.engine.plan import choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.seeding import stream


def errors(new_config, attention, length, models, width, by_token):
    task = Copy()
    numbers = torch.arange(128 * models, device="cuda")
    sample = task.sample(torch.full_like(numbers, length), stream(0, "check", numbers), length)
    ids = Sequential().evaluation_ids(task, sample)
    config = new_config(layers=3, width=width, heads=width // 32, attention=attention)
    members = [build_model(config, len(task.vocabulary), seed, device="cuda") for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    execution = ExecutionConfig(without=[] if by_token else ["first_layer_by_token"])
    plan = choose(model, execution, "cuda", "bf16")
    kernels = {"short_attention", "rotary_kernel"} if config.groups == config.heads else set()
    assert {"fused_layers", *kernels} <= set(plan.used), plan.unused
    found = {}
    for way, one in (("exact", model), ("plain", model), ("fused", plan.training_model(model))):
        with torch.autocast("cuda", torch.bfloat16, enabled=way != "exact"):
            loss = token_losses(one, sample, ids).sum()
        found[way] = [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]

    def error(way):
        pairs = zip(found[way], found["exact"], strict=True)
        return sum(float((a - b).norm() / b.norm()) for a, b in pairs) / len(found["exact"])

    return {way: error(way) for way in ("plain", "fused")}


lengths = (20, 100)  # for the short kernel, and the one that turns
widths = (128, 96)  # of whole tiles, and not
cases = itertools.product((SoftmaxConfig(), ScaledSoftmaxConfig()), lengths, (1, 3), widths, (False, True))
found = {str(case): errors(TransformerConfig, *case) for case in cases}
kinds = {
    "llama": LlamaConfig,
    "llama, groups": partial(LlamaConfig, kv_heads=1),
    "llama, biases": partial(LlamaConfig, biases=True),
    "sequential": partial(TransformerConfig, parallel_residual=False),
    "no biases": partial(TransformerConfig, biases=False),
    "gated": partial(TransformerConfig, gated=True),
    "rms": partial(TransformerConfig, norm="rms"),
}
for (name, kind), *case in itertools.product(kinds.items(), (20,), (1, 3), widths, (False, True)):
    found[f"{name}, {case}"] = errors(kind, SoftmaxConfig(), *case)
for case in itertools.product((ScaledSoftmaxConfig(),), (100,), (1, 3), (128,), (True,)):
    found[f"llama, {case}"] = errors(LlamaConfig, *case)
json.dump(found, sys.stdout)
