"""The kernels of the pointer head against the reference core."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import TINY
from on_gpu import run_apart

from longreach.api import (
    LearnedRopeConfig,
    PointerConfig,
    Predicted,
    RopeConfig,
    Span,
    TableConfig,
    VariableAssignment,
    build_model,
)
from longreach.engine.heads import FastPointer
from longreach.engine.plan import Plan, choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.model.position_heads.pointer import Pointer
from longreach.training import Step, TrainConfig, TrainingStream, build_optimizer

pytest.importorskip("triton")


@pytest.mark.slow
def test_the_kernels_compute_what_the_core_does():
    errors = run_apart(Path(__file__).with_name("check_pointer.py"), interpreted=True)
    assert len(errors) == 55
    assert {case: found for case, found in errors.items() if max(found) > 1e-5} == {}


def new(head, **config):
    return build_model(replace(TINY, position_head=head, **config), 9, 0, (0, 3), 40)


def reason(model):
    return choose(model, ExecutionConfig(), "cuda", "bf16").unused.get("pointer_kernels", "")


class OwnPointer(Pointer):
    """A head of a user's own."""


def test_they_are_used_where_they_compute_the_same():
    model = new(PointerConfig())
    assert reason(model) == ""
    assert reason(stack_models([model, model])) == ""
    assert (
        reason(new(None)) == reason(new(TableConfig(), encoding=LearnedRopeConfig())) == "the model has no pointer head"
    )
    assert reason(new(PointerConfig(moves=32))) == "an ID has more than 64 moves"
    learned = new(PointerConfig(), encoding=LearnedRopeConfig())
    assert reason(learned) == "the encoding knows no ID beyond 40"
    assert reason(new(PointerConfig()).double()) == "weights are in float64"
    assert choose(model, ExecutionConfig(), "cpu").unused["pointer_kernels"] == "needs a GPU"
    without = choose(model, ExecutionConfig(without=["pointer_kernels"]), "cuda")
    assert without.unused["pointer_kernels"] == "execution.without names it"
    with model.position_head.levels[0].register_forward_hook(lambda *_: None):
        assert reason(model) == "a hook is registered on the model"
    model.position_head.__class__ = OwnPointer
    assert reason(model) == "OwnPointer is a part of another class"


def test_training_embeds_tokens_once(monkeypatch):
    config = replace(TINY, encoding=RopeConfig(), position_head=PointerConfig())
    task = VariableAssignment(num_names=40, hops=Span(1, 2))
    policy = Predicted(max_id=60)
    model = build_model(config, len(task.vocabulary), 0, policy.level_sizes(task), 60)
    data = TrainingStream(task, policy, (3, 4), 4, 0, "cpu")
    plan = Plan(device="cpu", precision="fp32", engine="auto", used=("cross_entropy_kernel",), unused={})
    config = TrainConfig(steps=2, batch_size=4)
    looked_up = []
    look_up = torch.nn.functional.embedding
    monkeypatch.setattr(torch.nn.functional, "embedding", lambda *args: looked_up.append(1) or look_up(*args))
    found = []
    for one, times in ((model, 2), (plan.training_model(model), 1)):
        one.__dict__["fused_cross_entropy"] = False  # Triton needs a GPU
        step = Step(one, build_optimizer(config.optimizer, model), data, config)
        ready = step.prepare(0)
        looked_up.clear()
        step.differentiate(ready)
        assert len(looked_up) == times
        found.append([weight.grad.clone() for weight in model.parameters()])
    torch.testing.assert_close(*found)


def test_only_training_uses_them():
    model = new(PointerConfig())
    plan = Plan(device="cpu", precision="fp32", engine="auto", used=("pointer_kernels",), unused={})
    assert type(plan.training_model(model).position_head) is FastPointer
    assert type(plan.test_model(model).position_head) is Pointer
    assert all(map(torch.equal, plan.training_model(model).parameters(), model.parameters()))
