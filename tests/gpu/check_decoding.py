"""Run by test_engine_on_gpu.py in a process of its own: generates long answers by the plan and by the reference core,
and prints whether tokens and IDs are equal.  The first argument is the device."""

import json
import sys

import torch

from longreach.api import (
    AlibiConfig,
    Copy,
    EvalConfig,
    Lengths,
    LlamaConfig,
    ScaledSoftmaxConfig,
    Sequential,
    TransformerConfig,
    build_model,
    generate,
)
from longreach.engine.plan import choose
from longreach.engine.recorded_decoding import FROM
from longreach.evaluation import evaluate
from longreach.execution import ExecutionConfig
from longreach.seeding import stream

DEVICE = sys.argv[1]
TASK = Copy()
SMALL = {"layers": 2, "width": 128, "heads": 4}
MODELS = {
    "neox": TransformerConfig(**SMALL),
    "scaled": TransformerConfig(**SMALL, attention=ScaledSoftmaxConfig()),
    "alibi": TransformerConfig(**SMALL, encoding=AlibiConfig()),
    "llama": LlamaConfig(**SMALL, kv_heads=2),
}


def compare(config):
    model = build_model(config, len(TASK.vocabulary), 0, device=DEVICE).eval()
    with torch.no_grad():
        model.head.weight.mul_(40)  # decisive logits: near-ties would hide or feign differences
    plan = choose(model, ExecutionConfig(), DEVICE)
    length = FROM + 20
    numbers = torch.arange(16, device=DEVICE)
    sample = TASK.sample(torch.full_like(numbers, length), stream(0, "decode", numbers), length)
    core, found = (generate(model, TASK, Sequential(), sample, write=write) for write in (None, plan.write))
    tests = EvalConfig(lengths=Lengths((20, 100)), samples=64, free_samples=8)
    scores = [
        evaluate(model, TASK, Sequential(), tests, 0, DEVICE, batch_tokens=16 * 210, **parts)
        for parts in ({}, {"new_judge": plan.new_judge, "write": plan.write})
    ]
    return {
        "recorded": "recorded_decoding" in plan.used,
        "tokens": torch.equal(core.tokens, found.tokens),
        "ids": torch.equal(core.ids, found.ids),
        "stopped": torch.equal(core.stopped, found.stopped),
        "scores": scores[0] == scores[1],
    }


json.dump({name: compare(config) for name, config in MODELS.items()}, sys.stdout)
