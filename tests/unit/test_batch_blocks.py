"""Batches drawn in blocks are the batches of the steps."""

from dataclasses import dataclass, replace

import pytest
import torch
from catalogue import TASKS
from helpers import legal

from longreach.api import Coupled, ParityScratchpad, PrimeConfig, Sequential, Span
from longreach.engine.batch_blocks import BlockStream, count_steps
from longreach.engine.plan import choose
from longreach.execution import ExecutionConfig
from longreach.model import TransformerConfig, build_model
from longreach.training import TrainingStream

STEPS = (5, 6, 7, 8, 3)  # also from the middle of a block on, over its end, and back


def assert_equal(batch, expected):
    assert batch.task is expected.task
    for one, other in zip(batch.tensors(), expected.tensors(), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("task", [task for task in TASKS if not task.draws_on_host], ids=str)
def test_blocks_hold_the_batches_of_the_steps(task):
    stream = TrainingStream(task, Sequential(), tuple(sorted(set(legal(task, [4, 8])))), 3, 1, "cpu")
    blocks = BlockStream(stream, 4)
    for step in STEPS:
        assert_equal(blocks.batch(step), stream.batch(step))
    assert blocks.steps == 4  # the samples were not found to depend on their batch


@pytest.mark.parametrize("samples", [0, 5])
def test_blocks_of_primed_and_relabelled_samples(samples):
    policy = Coupled(max_id=90)
    prime = PrimeConfig(lengths=Span(20, 30), share=0.3, samples=samples)
    stream = TrainingStream(ParityScratchpad(), policy, (1, 2, 3), 8, 0, "cpu", prime)
    blocks = BlockStream(stream, 4)
    for step in STEPS:
        assert_equal(blocks.batch(step), stream.batch(step))


def test_a_task_whose_samples_depend_on_their_batch_is_drawn_step_by_step():
    @dataclass(frozen=True, kw_only=True)
    class Crowded(ParityScratchpad):
        def sample(self, length, draws, max_length):
            sample = super().sample(length, draws, max_length)
            return replace(sample, hidden={"rows": torch.full_like(length, len(length))})

    stream = TrainingStream(Crowded(), Sequential(), (1, 2, 3), 8, 0, "cpu")
    blocks = BlockStream(stream, 4)
    for step in STEPS:
        assert_equal(blocks.batch(step), stream.batch(step))
    assert blocks.steps == 1


def test_long_batches_are_drawn_alone():
    stream = TrainingStream(ParityScratchpad(), Sequential(), (1, 8), 64, 0, "cpu")
    assert count_steps(stream) == 16
    assert count_steps(replace(stream, lengths=(1, 100))) == 5
    assert count_steps(replace(stream, lengths=(1, 5000))) == 1


def test_the_plan_chooses_blocks_on_a_cpu():
    stream = TrainingStream(ParityScratchpad(), Sequential(), (1, 8), 64, 0, "cpu")
    model = build_model(TransformerConfig(layers=1, width=16, heads=1), 6, 0)
    plan = choose(model, ExecutionConfig(), "cpu", data=stream)
    assert isinstance(plan.training_data(stream, 10), BlockStream)
    for execution in (ExecutionConfig(engine="plain"), ExecutionConfig(without=["cpu_batches"])):
        assert choose(model, execution, "cpu", data=stream).training_data(stream, 10) is stream
    assert choose(model, ExecutionConfig(), "cuda", data=stream).unused["cpu_batches"] == "needs a CPU"
