"""Run by test_engine_on_gpu.py in a process of its own: trains by each part of the engine and by the reference core,
and prints how far they are apart.  The first argument is the device."""

import json
import sys
from dataclasses import replace

import torch

from longreach.api import (
    AlibiConfig,
    Copy,
    EqualIdsConfig,
    LlamaConfig,
    OptimizerConfig,
    RopeConfig,
    ScaledSoftmaxConfig,
    Sequential,
    TransformerConfig,
    build_model,
)
from longreach.engine.plan import choose
from longreach.execution import ExecutionConfig
from longreach.training import Step, TrainConfig, TrainingStream, build_optimizer

DEVICE = sys.argv[1]
STEPS = 20
TASK = Copy()
OPTIMIZER = OptimizerConfig(lr=1e-3, warmup=5, eps=1e-6)
MODELS = {
    "neox": TransformerConfig(layers=2, width=128, heads=4),
    "alibi": TransformerConfig(layers=2, width=128, heads=4, encoding=AlibiConfig()),
    "llama": LlamaConfig(layers=2, width=128, heads=4),
    "normalized": TransformerConfig(
        layers=2,
        width=128,
        heads=4,
        norm_queries_and_keys=True,
        id_heads=1,
        encoding=RopeConfig(fraction=0.5),
        attention=ScaledSoftmaxConfig(),
    ),
    "equal IDs": TransformerConfig(
        layers=2, width=128, heads=8, norm_queries_and_keys=True, encoding=EqualIdsConfig(heads=6)
    ),
}
PRECISIONS = (("fp32", torch.float64), ("fp32", torch.float32), ("bf16", torch.float32))
WITHIN = {
    "gelu_products": ("fused_layers",),
    "optimizer_kernels": ("recorded_steps",),
    "second_stream": ("recorded_steps", "fused_layers"),
    "batches_ahead": ("recorded_steps",),
}
"""Parts that work within others."""
TESTS = ("half_precision_tests", "recorded_tests", "recorded_decoding", "exact_attention")
"""Parts that training does not use."""


def new_step(model, plan, data):
    """Return a step as a run makes it."""
    config = TrainConfig(steps=STEPS, precision=plan.precision, optimizer=OPTIMIZER)
    return plan.training_step(Step(plan.training_model(model), build_optimizer(OPTIMIZER, model), data, config))


def train(config, precision, dtype, only=None, **execution):
    """Return the loss of every step, the way that all weights went, and the parts that were used."""
    model = build_model(config, len(TASK.vocabulary), 0, device=DEVICE).to(dtype)
    plan = choose(model, ExecutionConfig(**execution), DEVICE, precision)
    if only is not None:
        alone = {only, *WITHIN.get(only, ())}
        plan = replace(plan, used=tuple(name for name in plan.used if name in alone))
    before = torch.cat([weight.detach().flatten().clone() for weight in model.parameters()])
    step = new_step(model, plan, TrainingStream(TASK, Sequential(), (10, 20), 64, 0, DEVICE))
    losses = torch.stack([step(number)[0, 0] for number in range(STEPS)]).double()
    after = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return losses, after - before, plan.used


def apart(one, other):
    losses = ((one[0] - other[0]).abs() / other[0].abs()).max()
    weights = (one[1] - other[1]).norm() / other[1].norm()
    return {
        "losses": float(losses.nan_to_num(nan=torch.inf)),
        "weights": float(weights.nan_to_num(nan=torch.inf)),
        "used": list(one[2]),
    }


found = {}
for name, config in MODELS.items():
    for precision, dtype in PRECISIONS if name == "neox" else PRECISIONS[-1:]:
        core = train(config, precision, dtype, engine="plain")
        ways = {"auto": train(config, precision, dtype)}
        for part in ways["auto"][2]:
            if part not in TESTS:
                ways[f"only {part}"] = train(config, precision, dtype, only=part)
        ways["recompute"] = train(config, precision, dtype, recompute=True)
        label = "bf16" if precision == "bf16" else str(dtype).removeprefix("torch.")
        found |= {f"{name}, {label}, {way}": apart(one, core) for way, one in ways.items()}
if DEVICE == "cuda":
    from longreach.engine.exact_attention import attend

    qkv = torch.randn(3, 300, 4, 96, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(0)).transpose(1, 2)
    wanted = torch.nn.functional.scaled_dot_product_attention(*qkv.double().chunk(3, dim=-1), is_causal=True)
    error = (attend(*qkv.chunk(3, dim=-1)) - wanted).abs().max() / wanted.abs().max()
    found["attention, float32, exact"] = {"losses": float(error), "weights": 0.0, "used": ["exact_attention"]}
json.dump(found, sys.stdout)
