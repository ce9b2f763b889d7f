"""Generation for prompts of equal length: the same answers as the reference core's."""

from dataclasses import replace

import pytest
import torch
from catalogue import ATTENTIONS, ENCODINGS, label
from helpers import TINY, draw

from longreach.api import (
    Coupled,
    LearnedRopeConfig,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RecurrentConfig,
    RopeConfig,
    SamplingConfig,
    ScaledSoftmaxConfig,
    Sequential,
    SoftmaxConfig,
    Span,
    SparseParity,
    TableConfig,
    TransformerConfig,
    VariableAssignment,
    build_model,
)
from longreach.decoding import Writing, generate, write_answers
from longreach.engine import lockstep
from longreach.engine.lockstep import LockstepCache, LockstepWriting, write_in_lockstep
from longreach.engine.plan import choose
from longreach.execution import ExecutionConfig
from longreach.seeding import stream

PAIRS = [(encoding, ScaledSoftmaxConfig()) for encoding in ENCODINGS] + [(RopeConfig(), other) for other in ATTENTIONS]
SHAPES = {
    "neox": replace(TINY, attention=SoftmaxConfig()),
    "qk norm": replace(TINY, norm_queries_and_keys=True),
    "id heads": replace(TINY, id_heads=1),
    "kv heads": replace(TINY, heads=4, kv_heads=2),
    "partial rotary": replace(TINY, encoding=RopeConfig(fraction=0.5)),
    "loops": replace(TINY, loops=2),
    "copy head": replace(TINY, copy_head=True),
    "wide": TransformerConfig(layers=3, width=128, heads=4),
    "recurrent": RecurrentConfig(layers=1, width=16),
}
JOBS = [
    (ParityScratchpad(), Coupled(max_id=90)),
    (VariableAssignment(num_names=40, hops=Span(1, 3), name_tokens=2), Sequential()),
    (SparseParity(k=Span(1, 3)), Coupled(max_id=90)),  # some tokens of its answers are given
]


def decisive(config, task, policy):
    """Return a model with decisive scores: near-ties would hide or feign differences."""
    model = build_model(config, len(task.vocabulary), 5, policy.level_sizes(task), policy.max_id).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("head", "copy_head", "position_head")) and parameter.dim() > 1:
                parameter.mul_(40 if name.startswith("head") else 10)
    return model


def assert_same_answers(model, task, policy, sample, **options):
    core = generate(model, task, policy, sample, **options)
    found = generate(model, task, policy, sample, write=write_in_lockstep, **options)
    assert torch.equal(found.tokens, core.tokens)
    assert torch.equal(found.ids, core.ids)
    assert torch.equal(found.stopped, core.stopped)
    return core


@pytest.mark.parametrize(("task", "policy"), JOBS, ids=str)
@pytest.mark.parametrize(("encoding", "attention"), PAIRS, ids=label)
def test_answers_are_those_of_the_core(task, policy, encoding, attention):
    model = decisive(replace(TINY, encoding=encoding, attention=attention), task, policy)
    assert_same_answers(model, task, policy, draw(task, [10] * 6))


@pytest.mark.parametrize("name", SHAPES)
def test_answers_of_models_of_other_shapes(name):
    task, policy = ParityScratchpad(), Sequential()
    assert_same_answers(decisive(SHAPES[name], task, policy), task, policy, draw(task, [10] * 6))


@pytest.mark.parametrize("head", [PointerConfig(), PointerConfig(kind_first=True), TableConfig()], ids=str)
def test_predicted_ids_are_those_of_the_core(head):
    task, policy = VariableAssignment(num_names=40, hops=Span(1, 3), name_tokens=2), Predicted(max_id=120)
    encoding = LearnedRopeConfig() if isinstance(head, TableConfig) else RopeConfig()
    model = decisive(replace(TINY, encoding=encoding, position_head=head), task, policy)
    assert_same_answers(model, task, policy, draw(task, [10] * 6))


def test_rows_that_stop_early_change_nothing():
    task, policy = ParityScratchpad(), Sequential()
    model = decisive(SHAPES["neox"], task, policy)
    sampling, draws = SamplingConfig(temperature=50.0), stream(0, "test", torch.arange(12))
    written = assert_same_answers(model, task, policy, draw(task, [20] * 12), sampling=sampling, draws=draws)
    assert written.stopped.any()
    assert len(set((written.tokens[:, 22:] == task.stop_token).int().argmax(1).tolist())) > 3


def test_prompts_of_unequal_length_are_left_to_the_core(monkeypatch):
    task, policy = ParityScratchpad(), Sequential()
    model = decisive(SHAPES["neox"], task, policy)
    monkeypatch.setattr(lockstep, "LockstepWriting", None)
    assert_same_answers(model, task, policy, draw(task, [6, 10, 8]))


@pytest.mark.parametrize("name", ["neox", "wide", "kv heads", "partial rotary"])
def test_states_are_those_of_the_core_bit_for_bit(name):
    task, policy = ParityScratchpad(), Sequential()
    model, sample = decisive(SHAPES[name], task, policy), draw(task, [12] * 8)
    prompt = sample.prompt_only()
    states = []
    for in_lockstep in (False, True):
        writing = Writing(
            model, None, prompt, policy.evaluation_ids(task, prompt), None, SamplingConfig(), None, use_cache=True
        )
        with torch.no_grad():
            (write_in_lockstep if in_lockstep else write_answers)(writing)
        assert isinstance(writing.cache, LockstepCache) == in_lockstep
        states.append(writing.hidden)
    assert torch.equal(*states)


def test_a_plan_for_a_cpu_writes_in_lockstep(monkeypatch):
    task, policy = ParityScratchpad(), Sequential()
    model, sample = decisive(SHAPES["neox"], task, policy), draw(task, [8] * 3)
    used = []
    monkeypatch.setattr(lockstep, "LockstepWriting", lambda *args: used.append(1) or LockstepWriting(*args))
    for without, expected in (([], 1), (["lockstep_decoding"], 0)):
        used.clear()
        generate(model, task, policy, sample, write=choose(model, ExecutionConfig(without=without), "cpu").write)
        assert len(used) == expected
