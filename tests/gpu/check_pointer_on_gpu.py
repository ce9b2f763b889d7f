"""Run by test_engine_on_gpu.py in a process of its own: trains models with a pointer head by the plan and by the
reference core, and prints how far gradients in bf16 are from fp32, and losses of recorded steps from plain ones."""

import json
import sys
from dataclasses import replace

import torch

from longreach.api import (
    OptimizerConfig,
    ParityScratchpad,
    PointerChasing,
    PointerConfig,
    Predicted,
    RopeConfig,
    ScaledSoftmaxConfig,
    Span,
    TransformerConfig,
    VariableAssignment,
    build_model,
)
from longreach.engine.plan import choose
from longreach.engine.stacked_training import MultiSeedStream, StackedStep
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.training import Step, TrainConfig, TrainingStream, build_optimizer

STEPS = 20
POLICY = Predicted(max_id=400)
MODEL = TransformerConfig(
    layers=2,
    width=128,
    heads=4,
    tie_embeddings=True,
    encoding=RopeConfig(spectrum="random"),
    attention=ScaledSoftmaxConfig(),
)
NAMES = VariableAssignment(num_names=2_000, hops=Span(1, 3), echo=True, end="marked")
CASES = {
    "assignment": (NAMES, PointerConfig(), 1),
    "assignment, stack": (NAMES, PointerConfig(), 3),
    "assignment, plain products": (NAMES, PointerConfig(normalise=False, see_token=False), 1),
    "parity": (ParityScratchpad(), PointerConfig(moves=2), 1),
    "parity, stack": (ParityScratchpad(), PointerConfig(kind_first=True), 3),
    "pointer chasing": (PointerChasing(num_names=40, hops=Span(1, 3)), PointerConfig(across_levels=True), 1),
}


def new_step(case, execution, precision):
    task, head, models = CASES[case]
    config = replace(MODEL, position_head=head)
    sizes = POLICY.level_sizes(task)
    members = [build_model(config, len(task.vocabulary), seed, sizes, 400, "cuda") for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    data = TrainingStream(task, POLICY, tuple(range(4, 13)), 64, 0, "cuda")
    kind = Step
    if models > 1:
        data, kind = MultiSeedStream.of(data, range(1, models)), StackedStep
    plan = choose(model, execution, "cuda", precision)
    train = TrainConfig(steps=STEPS, precision=precision, optimizer=OptimizerConfig(lr=1e-4, warmup=5))
    step = kind(plan.training_model(model), build_optimizer(train.optimizer, model), data, train)
    return plan, model, step


def gradients(case, execution, precision):
    _, model, step = new_step(case, execution, precision)
    means = step.differentiate(step.prepare(0))
    return [means, *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def error(found, exact):
    """Return the mean distance, as a share of the norm, of the tensors that are no rounding of zero."""
    least = 1e-4 * max(float(b.norm()) for b in exact)
    far = [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True) if b.norm() > least]
    return sum(far) / len(far)


def losses(case, execution, precision):
    plan, _, step = new_step(case, execution, precision)
    step = plan.training_step(step)
    return torch.stack([step(number)[:, :2] for number in range(STEPS)]).double()


def compare(case):
    plain, fast = ExecutionConfig(engine="plain"), ExecutionConfig()
    used = new_step(case, fast, "bf16")[0].used
    assert ("cross_entropy_kernel" in used) == case.startswith("assignment")
    exact = gradients(case, plain, "fp32")
    only = ExecutionConfig(without=["fused_layers", "first_layer_by_token", "short_attention", "rotary_kernel"])
    one, other, again = (losses(case, execution, "bf16") for execution in (fast, plain, fast))
    return {
        "used": "pointer_kernels" in used,
        "plain": error(gradients(case, plain, "bf16"), exact),
        "fused": error(gradients(case, fast, "bf16"), exact),
        "fp32": error(gradients(case, only, "fp32"), exact),
        "losses": float(((one - other).abs() / other.abs()).max().nan_to_num(nan=torch.inf)),
        "same bits twice": torch.equal(one, again),
    }


json.dump({case: compare(case) for case in CASES}, sys.stdout)
