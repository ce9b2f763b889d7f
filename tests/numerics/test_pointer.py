"""The kernels of the pointer head against the reference core."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import TINY
from on_gpu import run_apart

from longreach.api import LearnedRopeConfig, PointerConfig, TableConfig, build_model
from longreach.engine.heads import FastPointer
from longreach.engine.plan import Plan, choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig
from longreach.model.position_heads.pointer import Pointer

pytest.importorskip("triton")


def test_the_kernels_compute_what_the_core_does():
    errors = run_apart(Path(__file__).with_name("check_pointer.py"), interpreted=True)
    assert len(errors) == 52
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
        assert reason(model) == "a hook is registered on the position head"
    model.position_head.__class__ = OwnPointer
    assert reason(model) == "OwnPointer is a part of another class"


def test_only_training_uses_them():
    model = new(PointerConfig())
    plan = Plan(device="cpu", precision="fp32", engine="auto", used=("pointer_kernels",), unused={})
    assert type(plan.training_model(model).position_head) is FastPointer
    assert type(plan.test_model(model).position_head) is Pointer
    assert all(map(torch.equal, plan.training_model(model).parameters(), model.parameters()))
