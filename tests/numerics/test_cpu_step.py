"""A training step on a CPU: the parts of the engine for it change no bit."""

import copy
from dataclasses import replace

import pytest
import torch

from longreach.api import (
    Copy,
    LlamaConfig,
    OptimizerConfig,
    RopeConfig,
    ScaledSoftmaxConfig,
    Sequential,
    Span,
    TrainConfig,
    TransformerConfig,
    build_model,
)
from longreach.engine.cpu_optimizer import CpuStep
from longreach.engine.layers import CpuAttention
from longreach.engine.plan import choose
from longreach.execution import ExecutionConfig
from longreach.model.block import LayerInputs, SelfAttention
from longreach.positions.encodings import Shape
from longreach.training import Step, TrainingStream, build_optimizer

PARTS = ["cpu_rotation", "cpu_batches", "cpu_optimizer"]
SMALL = TransformerConfig(layers=2, width=64, heads=2, attention=ScaledSoftmaxConfig())
MODELS = {
    "scaled": SMALL,
    "in turn": replace(SMALL, parallel_residual=False),
    "llama": LlamaConfig(layers=2, width=64, heads=2),
    "random spectrum": replace(SMALL, encoding=RopeConfig(spectrum="random")),
}
TASK = Copy()


def trained(config, without, steps=8, double=False, clip=1.0):
    """Return what some steps return, and the weights and the state of the optimizer after them."""
    model = build_model(config, len(TASK.vocabulary), 0)
    model = model.double() if double else model
    train = TrainConfig(
        lengths=Span(1, 8), steps=steps, batch_size=32, optimizer=OptimizerConfig(lr=4e-3, warmup=2, clip=clip)
    )
    data = TrainingStream(TASK, Sequential(), tuple(range(1, 9)), 32, 0, "cpu")
    plan = choose(model, ExecutionConfig(without=without), "cpu", data=data)
    optimizer = build_optimizer(train.optimizer, model)
    step = plan.training_step(Step(plan.training_model(model), optimizer, plan.training_data(data, steps), train))
    assert isinstance(step, CpuStep) == ("cpu_optimizer" not in without)
    values = [step(number) for number in range(steps)]
    states = [tensor for state in optimizer.state.values() for tensor in state.values()]
    return [*values, *model.parameters(), *states]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("clip", [0.05, 0.0])
def test_steps_are_the_same_bit_for_bit(name, clip):
    expected = trained(MODELS[name], PARTS, clip=clip)
    for without in ([], *([part] for part in PARTS)):
        found = trained(MODELS[name], without, clip=clip)
        assert len(found) == len(expected)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_steps_of_a_float64_model():
    found, expected = (trained(SMALL, without, double=True) for without in ([], PARTS))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize(("batch", "tokens", "heads", "width"), [(3, 7, 2, 32), (5, 1, 4, 64), (2, 30, 1, 128)])
def test_rotation_and_its_gradient_are_those_of_the_core(batch, tokens, heads, width):
    config = TransformerConfig(width=width, heads=heads)
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(batch, tokens, 3 * width, generator=generator)
    shape = Shape(width, heads, (0,), 0)
    ids = torch.randint(0, 1000, (batch, 1, tokens), generator=generator)
    inputs = LayerInputs(
        RopeConfig().build(shape).rotation(ids, ids[:, :, :1]), None, ids[:, 0], None, None, None, None
    )
    gradients = [torch.randn(batch, tokens, heads, width // heads, generator=generator) for _ in range(3)]
    found = []
    for kind in (SelfAttention, CpuAttention):
        attention = kind(config, config.attention.build(shape))
        x = qkv.clone().requires_grad_()
        parts = attention.turned(x, inputs)
        torch.autograd.backward(parts, [gradient.transpose(1, 2) for gradient in gradients])
        with torch.no_grad():
            assert all(torch.equal(*pair) for pair in zip(parts, attention.turned(qkv, inputs), strict=True))
        found.append((*parts, x.grad))
    for core, fast in zip(*found, strict=True):
        assert torch.equal(core, fast)
        assert core.stride() == fast.stride()


def test_a_step_continues_from_another_state():
    model = build_model(SMALL, len(TASK.vocabulary), 0)
    train = TrainConfig(lengths=Span(1, 8), steps=8, batch_size=8)
    data = TrainingStream(TASK, Sequential(), tuple(range(1, 9)), 8, 0, "cpu")
    optimizer = build_optimizer(train.optimizer, model)
    step = CpuStep(Step(model, optimizer, data, train))
    step(0)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    found = []
    for _ in range(2):
        weights, state = copy.deepcopy(saved)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        found.append(torch.stack([step(1), step(2)]))
    assert torch.equal(*found)
