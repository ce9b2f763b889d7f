"""Run by test_engine_on_gpu.py in a process of its own, for shape checks would hide the kernels' source: trains by
recorded steps and by plain ones, and prints how far weights are apart, as shares of the way that they went."""

import json
import sys
from dataclasses import replace

import torch
from drawn_tasks import Echo

from longreach.api import Copy, Coupled, LlamaConfig, Sequential, TransformerConfig, build_model
from longreach.engine import second_stream as beside
from longreach.engine.drawing import HostStream, closing_workers
from longreach.engine.drawing_ahead import count_steps_ahead
from longreach.engine.plan import choose
from longreach.engine.recorded_step import HostRecordedStep, RecordedStep
from longreach.engine.stacked_training import MultiSeedStream, StackedStep
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.training import OptimizerConfig, Step, TrainConfig, build_optimizer

STEPS = 30


def train(models, layers, shares, accumulate, record, host=False, kind=TransformerConfig):
    """Train; with `host`, the task is in plain Python, and two processes draw batches for the recorded steps."""
    task, policy = (Echo(), Coupled(max_id=90)) if host else (Copy(), Sequential())
    data = MultiSeedStream(task, policy, (20,), 64, 0, "cuda", more_seeds=tuple(range(1, models)))
    if host:
        data = HostStream(data, 2 if record else 0)
        data.wait_for_workers()
    with closing_workers(data):
        return train_on(data, task, kind(layers=layers, width=128, heads=4), models, shares, accumulate, record)


def train_on(data, task, shape, models, shares, accumulate, record):
    members = [build_model(shape, len(task.vocabulary), seed, device="cuda") for seed in range(models)]
    model = members[0] if models == 1 else stack_models(members)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    config = TrainConfig(steps=STEPS, precision="bf16", optimizer=OptimizerConfig(warmup=5))
    optimizer = build_optimizer(config.optimizer, model)
    fast = choose(model, ExecutionConfig(), "cuda", "bf16").training_model(model)
    if models == 1:
        step = Step(fast, optimizer, data, config, accumulate)
    else:
        step = StackedStep(fast, optimizer, data, config, accumulate, shares)
    if record:
        kind = HostRecordedStep if isinstance(data, HostStream) else RecordedStep
        step = kind(step, ahead=count_steps_ahead(step.data))
        assert step.update is not None
        assert (step.way is None) == (accumulate > 1)
    told = torch.stack([step(number) for number in range(STEPS)])
    return told, before, [parameter.detach() for parameter in model.parameters()]


def way_apart(one, other):
    """All weights together: those that make no difference, as biases of keys, follow what rounding leaves."""
    flat = [torch.cat([tensor.flatten() for tensor in tensors]) for tensors in (one[1], one[2], other[2])]
    start, a, b = flat
    return float(((a - b).norm() / (a - start).norm()).nan_to_num(nan=torch.inf))


found = {}
for case in (
    (1, 3, None, 1, False),
    (3, 2, None, 1, False),
    (2, 1, (1.0, 0.3), 1, False),
    (1, 2, None, 2, False),
    (1, 2, None, 1, True),
    (3, 2, None, 1, True),
    (1, 3, None, 1, False, LlamaConfig),
    (3, 2, None, 1, False, LlamaConfig),
):
    beside._HELD = 24 if case[0] == 3 else 2  # so that it is waited for before the end, or not
    plain, recorded, again = (train(*case[:4], record, *case[4:]) for record in (False, True, True))
    told = float(((plain[0] - recorded[0]).abs() / plain[0].abs().clamp(min=1e-3)).max())
    found[str(case)] = {
        "losses": told,
        "weights": way_apart(plain, recorded),
        "same bits twice": all(torch.equal(a, b) for a, b in zip(recorded[2], again[2], strict=True)),
    }

on_cpu = MultiSeedStream(Echo(), Coupled(max_id=90), (3, 20), 64, 0, "cpu", more_seeds=(4,))
for workers in (0, 2):
    data = HostStream(replace(on_cpu, device="cuda"), workers)
    data.wait_for_workers()
    with closing_workers(data):
        # more steps than copies are under way: pinned memory is used again
        batches = [data.batch(number) for number in range(12)]
    same = [
        on_gpu.device.type == "cuda" and torch.equal(on_gpu.cpu(), tensor)
        for number, batch in enumerate(batches)
        for on_gpu, tensor in zip(batch.tensors(), on_cpu.batch(number).tensors(), strict=True)
    ]
    found[f"batches, {workers} workers"] = {"losses": 0.0, "weights": 0.0, "same bits twice": all(same)}
json.dump(found, sys.stdout)
