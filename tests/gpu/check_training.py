"""Run by test_engine_on_gpu.py in a process of its own: trains by each part of the engine and by the reference core,
and prints how far they are apart.  The first argument is the device."""

import json
import sys
from dataclasses import replace

import torch

from longreach.api import (
    AlibiConfig,
    Copy,
    LlamaConfig,
    ObjectiveConfig,
    OptimizerConfig,
    Sequential,
    TransformerConfig,
    build_model,
)
from longreach.engine.plan import choose
from longreach.execution import ExecutionConfig
from longreach.training import TrainingStream, build_optimizer
from longreach.training.step import Stepper

DEVICE = sys.argv[1]
STEPS = 20
TASK = Copy()
OPTIMIZER = OptimizerConfig(lr=1e-3, warmup=5, eps=1e-6)
MODELS = {
    "neox": TransformerConfig(layers=2, width=128, heads=4),
    "alibi": TransformerConfig(layers=2, width=128, heads=4, encoding=AlibiConfig()),
    "llama": LlamaConfig(layers=2, width=128, heads=4),
}


def new_step(model, plan, data):
    """Return a step as a run makes it; the only function that knows the class of a step."""
    optimizer = build_optimizer(OPTIMIZER, model)
    record, bf16 = "recorded_steps" in plan.used, plan.precision == "bf16"
    twin = plan.training_model(model)
    return Stepper(twin, optimizer, data, OPTIMIZER, ObjectiveConfig(), STEPS, 1, bf16=bf16, record=record)


def train(config, precision, dtype, only=None, **execution):
    """Return the loss of every step, the way that all weights went, and the parts that were used."""
    model = build_model(config, len(TASK.vocabulary), 0, device=DEVICE).to(dtype)
    plan = choose(model, ExecutionConfig(**execution), DEVICE, precision)
    if only is not None:
        plan = replace(plan, used=tuple(name for name in plan.used if name == only))
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
    for precision, dtype in (("fp32", torch.float64), ("fp32", torch.float32), ("bf16", torch.float32)):
        core = train(config, precision, dtype, engine="plain")
        ways = {"auto": train(config, precision, dtype)}
        for part in ways["auto"][2]:
            ways[f"only {part}"] = train(config, precision, dtype, only=part)
            ways[f"without {part}"] = train(config, precision, dtype, without=[part])
        ways["recompute"] = train(config, precision, dtype, recompute=True)
        label = "bf16" if precision == "bf16" else str(dtype).removeprefix("torch.")
        found |= {f"{name}, {label}, {way}": apart(one, core) for way, one in ways.items()}
json.dump(found, sys.stdout)
