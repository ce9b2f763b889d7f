"""Batches that follow each other: which of them are judged in half precision, and which by a recorded pass.

A CPU records no CUDA graphs.  Here torch's tracer stands for one: it too keeps operations and forgets Python, and
refuses what would wait for a number.
"""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from catalogue import ATTENTIONS, ENCODINGS, label
from helpers import TINY, draw
from hypothesis import given
from hypothesis import strategies as st
from learned import JOBS, half_trained, repeating
from torch.fx.experimental.proxy_tensor import make_fx

from longreach.api import (
    EvalConfig,
    Lengths,
    ParityScratchpad,
    RecurrentConfig,
    Sequential,
    build_model,
)
from longreach.bench.scribble import Scribble, scribbled
from longreach.engine import judging
from longreach.engine.judging import FastJudge
from longreach.engine.plan import Plan, choose
from longreach.engine.recording import fixed, put, record
from longreach.engine.two_passes import JudgedBatch, Models, Tried, judge_in_two_passes, judge_open_rows, try_in_half
from longreach.evaluation import Judged, evaluate, judge
from longreach.evaluation.evaluate import Cell, batches_of
from longreach.evaluation.exact_match import Asked
from longreach.execution import ExecutionConfig


def trace(compute, batch):
    """Stand for `record`: the result is overwritten by every replay."""

    def passes(*tensors):
        places = iter(tensors)
        tried = compute(batch.map(lambda tensor: next(places)))
        return [*tried.judged.tensors(), tried.settled, tried.open]

    traced = make_fx(passes)(*batch.tensors())
    *judged, settled, is_open = results = passes(*batch.tensors())
    for tensor in results:
        tensor.zero_()

    def replay():
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            for place, tensor in zip(results, traced(*batch.tensors()), strict=True):
                place.copy_(tensor)

    return Tried(Judged(*judged), settled, is_open), replay


class Ways(list):
    """The way in which each batch was judged, and the rows that half precision settled."""

    def __init__(self):
        super().__init__()
        self.settled = []


@pytest.fixture
def ways(monkeypatch):
    """Record the way of each batch, where all batches are large and a trace stands for a graph."""
    seen = Ways()

    def plain(*arguments):
        seen.append("plain")
        return try_in_half(*arguments)

    def watched(compute, batch):
        before = list(seen)
        result, replay = trace(compute, batch)
        seen[:] = [*before, "record"]
        return result, lambda: seen.append("replay") or replay()

    def second_pass(model, batch, tried, reserved):
        seen.settled.append(tried.settled)
        return judge_open_rows(model, batch, tried, reserved)

    monkeypatch.setattr(FastJudge, "is_large", lambda judge, sample: True)
    monkeypatch.setattr(judging, "try_in_half", plain)
    monkeypatch.setattr(judging, "record", watched)
    monkeypatch.setattr(judging, "judge_open_rows", second_pass)
    monkeypatch.setattr(judging, "has_memory", lambda device: True)
    return seen


def new_judge(model, record=True):
    return FastJudge(model, half=model, record=record)


def in_two_passes(model, *arguments):
    return judge_in_two_passes(Models(model, model), *arguments)


def plan_of_tests(*used):
    return Plan(device="cpu", precision="fp32", engine="auto", used=used, unused={})


def _assert_equal(found, expected):
    for one, other in zip(found.tensors(), expected.tensors(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def _other(sample):
    """A batch of the same shape with other rows, in which some answers are wrong."""
    other = sample.map(lambda tensor: tensor.flip(0))
    tokens = other.tokens.clone()
    tokens[1::4] = torch.where(other.answer[1::4], 1 + tokens[1::4] % int(tokens.max()), tokens[1::4])
    return replace(other, tokens=tokens)


@pytest.mark.parametrize("job", JOBS)
def test_batches_of_one_shape_are_recorded_and_replayed(job, ways):
    model, task, policy, sample = half_trained(job)
    judge = new_judge(model)
    batches = [sample, _other(sample), sample, _other(_other(sample))]
    found, expected = [], []
    for batch in batches:
        ids = policy.evaluation_ids(task, batch)
        found.append(judge(batch, ids))
        expected.append(in_two_passes(model, batch, ids))
    assert ways == ["plain", "record", "replay", "replay", "replay"]
    for one, other in zip(found, expected, strict=True):
        _assert_equal(one, other)
    assert not torch.equal(found[0].exact, found[1].exact)
    assert ways.settled[1].any()


def test_a_later_batch_does_not_overwrite_an_earlier_one(ways):
    """Where nothing is left open, so that nothing makes new tensors of the results."""
    model, sample, ids = repeating()
    judge, flipped = new_judge(model), sample.map(lambda tensor: tensor.flip(0))
    found = [judge(batch, ids) for batch in (sample, flipped, sample, flipped)]
    assert ways.count("replay") == 3
    assert [int(settled.sum()) for settled in ways.settled] == 4 * [len(ids) - 3]
    for one, batch in zip(found, (sample, flipped, sample, flipped), strict=True):
        _assert_equal(one, in_two_passes(model, batch, ids))
    assert not torch.equal(found[2].margin, found[3].margin)


@pytest.mark.parametrize("try_half", [True, False])
def test_what_the_caller_computes_in_makes_no_difference(ways, try_half):
    model, sample, ids = repeating()
    alone, inside = (FastJudge(model, model if try_half else None, record=True) for _ in range(2))
    for _ in range(3):
        expected = alone(sample, ids)
        with torch.autocast("cpu", torch.bfloat16):
            found = inside(sample, ids)
        _assert_equal(found, expected)
    assert bool(ways) == try_half


def test_another_shape_is_recorded_anew(ways):
    model, sample, ids = repeating()
    judge = new_judge(model)
    for rows in (20, 20, 8, 8, 8, 20):
        found = judge(sample.rows(0, rows), ids[:rows])
        _assert_equal(found, in_two_passes(model, sample.rows(0, rows), ids[:rows]))
    assert ways == ["plain", "record", "replay", "plain", "record", "replay", "replay", "plain"]


def test_what_is_asked_for_and_the_reserved_id_belong_to_a_shape(ways):
    model, task, policy, sample = half_trained("predicted")
    ids = policy.evaluation_ids(task, sample)
    fewer = replace(sample, answer=sample.answer & (torch.arange(sample.answer.shape[1]) < 12))
    assert Asked.of(model, fewer).tokens.shape != Asked.of(model, sample).tokens.shape
    judge = new_judge(model)
    for batch, shift in ((sample, 0), (fewer, 0), (fewer, 7), (fewer, 7)):
        _assert_equal(judge(batch, ids + shift, shift), in_two_passes(model, batch, ids + shift, shift))
    assert ways == ["plain", "plain", "plain", "record", "replay"]


def test_nothing_is_recorded_where_it_is_not_wanted(ways, monkeypatch):
    model, sample, ids = repeating()
    unwanted = new_judge(model, record=False)
    for _ in range(3):
        unwanted(sample, ids)
    assert ways == ["plain"] * 3
    ways.clear()
    judge = new_judge(model)
    monkeypatch.setattr(judging, "has_memory", lambda device: False)
    for _ in range(3):
        judge(sample, ids)
    assert ways == ["plain"] * 3


def test_a_plan_records_many_batches_of_models_without_hooks():
    model, _, _ = repeating()
    execution = ExecutionConfig(without=["large_chunks"])  # which asks the GPU for its memory
    plan = choose(model, execution, "cuda")
    assert plan.new_judge(model, judging.WORTH_RECORDING).record
    assert not plan.new_judge(model, judging.WORTH_RECORDING - 1).record
    assert not choose(model, replace(execution, graph=False), "cuda").new_judge(model, 9).record
    with model.head.register_forward_hook(lambda *_: None):  # which a replay would not call
        hooked = choose(model, execution, "cuda")
    assert hooked.unused["recorded_tests"] == "a hook is registered on the model"
    assert not hooked.new_judge(model, 9).record
    assert hooked.new_judge(model, 9).models is not None


def test_hooks_see_both_passes(ways):
    model, sample, ids = repeating()
    judge, calls = new_judge(model, record=False), []
    with model.head.register_forward_hook(lambda *_: calls.append(1)):
        for _ in range(3):
            judge(sample, ids)
    assert len(calls) == 3 * 2


@pytest.mark.parametrize(("left", "kept"), [(3, False), (5, True), (4, True)])
def test_a_graph_must_find_as_much_memory_as_was_taken(left, kept, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (left, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 4)
    assert judging.has_memory(torch.device("cuda")) == kept


PARTS = [("encoding", part) for part in ENCODINGS] + [("attention", part) for part in ATTENTIONS]


@pytest.mark.parametrize(("name", "part"), PARTS, ids=label)
def test_both_passes_wait_for_nothing_whatever_the_model_is_made_of(name, part):
    task = ParityScratchpad()
    model = build_model(replace(TINY, layers=1, **{name: part}), len(task.vocabulary), 1, (0,), 120).eval()
    batches = []
    for seed in range(2):
        sample = draw(task, [5, 9, 7, 12, 8], seed)
        batches.append(JudgedBatch(sample, Sequential().evaluation_ids(task, sample), Asked.of(model, sample)))
    places = batches[0].map(fixed)
    found, replay = trace(lambda batch: try_in_half(Models(model, model), batch), places)
    put(batches[1].tensors(), places.tensors())
    replay()
    expected = try_in_half(Models(model, model), batches[1])
    _assert_equal(found.judged, expected.judged)
    assert torch.equal(found.settled, expected.settled)
    assert torch.equal(found.open, expected.open)


def test_scores_are_the_same_with_a_recorded_pass_and_without(ways):
    model, task, policy, _ = half_trained("coupled")
    config = EvalConfig(lengths=Lengths((4, 8)), samples=100, free_samples=0)
    budget = 25 * task.max_tokens(8)
    assert task.max_tokens(8) > 4 / 3 * task.max_tokens(4)
    plan = plan_of_tests("half_precision_tests", "recorded_tests")
    found = evaluate(model, task, policy, config, seed=0, device="cpu", batch_tokens=budget, new_judge=plan.new_judge)
    # the shorter length has too few batches
    assert ways == ["plain"] * 3 + ["plain", "record", "replay", "replay", "replay"]
    ways.clear()
    plan = plan_of_tests("half_precision_tests")
    assert found == evaluate(
        model, task, policy, config, seed=0, device="cpu", batch_tokens=budget, new_judge=plan.new_judge
    )
    assert set(ways) == {"plain"}
    assert found == evaluate(
        model, task, policy, config, seed=0, device="cpu", batch_tokens=budget
    )  # the reference core


def test_what_is_recorded_is_what_is_replayed(monkeypatch):
    happened = []

    class Graph:
        def replay(self):
            happened.append(("replayed", self))

    @contextmanager
    def capture(graph):
        happened.append(("began", graph))
        yield
        happened.append(("ended", graph))

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    result, replay = record(lambda places: happened.append(("computed", places)) or "result", "places")
    replay()
    assert result == "result"
    (_, graph), *others = happened
    assert others == [("computed", "places"), ("ended", graph), ("replayed", graph)]


@given(samples=st.integers(1, 300), tokens=st.integers(1, 2000))
def test_a_cell_is_cut_into_few_batches_of_one_size(samples, tokens):
    cell = Cell(ParityScratchpad(), 5, {})
    most = max(1, tokens // cell.task.max_tokens(5))
    batches = batches_of(cell, EvalConfig(samples=samples, free_samples=0), tokens)
    assert [number for start, size in batches for number in range(start, start + size)] == list(range(samples))
    assert len(batches) == -(-samples // most)
    assert len({size for _, size in batches[:-1]}) <= 1
    assert batches[-1][1] <= batches[0][1] <= most
    if samples % len(batches) == 0:
        assert batches[0][1] == batches[-1][1]


def test_half_precision_is_tried_where_it_pays(ways):
    model, sample, ids = repeating()
    judge(model, sample, ids)
    choose(model, ExecutionConfig(), "cpu").new_judge(model, 9)(sample, ids)
    assert ways == []  # on a CPU never
    plan_of_tests("half_precision_tests").new_judge(model, 9)(sample, ids)
    assert ways == ["plain"]
    assert ways.settled[0].any()


def test_half_precision_pays_for_large_batches_and_fused_attention():
    weights = sum(parameter.numel() for parameter in build_model(TINY, 27, 0).parameters())
    rows = judging._WORK // (weights * 200) + 1

    def pays(config, rows=rows, device="cuda"):
        one = scribbled(Scribble(prompt_tokens=100), 1, 100, "cpu")
        sample = one.map(lambda tensor: tensor.expand(rows, *tensor.shape[1:]))
        model = build_model(config, 27, 0)
        tries = "half_precision_tests" in choose(model, ExecutionConfig(), device).used
        return tries and new_judge(model).is_large(sample)

    assert pays(TINY)
    assert not pays(TINY, device="cpu")
    assert not pays(TINY, rows=rows // 2)
    assert not pays(replace(TINY, width=4096, heads=64), rows=3)
    assert not pays(RecurrentConfig(layers=2, width=64))
    for attention in ATTENTIONS:
        config = replace(TINY, attention=attention)
        fused = all(block.attention.mix.fused for block in build_model(config, 27, 0).blocks)
        assert pays(config, 2 * rows) == fused


@pytest.mark.parametrize("settled", [True, False])
def test_a_cell_where_nothing_was_settled_does_not_try_again(settled, monkeypatch):
    tried = []

    def watched(models, batch, reserved):
        tried.append(int(batch.sample.length[0]))
        found = try_in_half(models, batch, reserved)
        return found._replace(settled=torch.full_like(found.settled, settled))

    monkeypatch.setattr(judging, "try_in_half", watched)
    monkeypatch.setattr(FastJudge, "is_large", lambda judge, sample: True)
    task = ParityScratchpad()
    model = build_model(TINY, len(task.vocabulary), 0)
    config = EvalConfig(lengths=Lengths((4, 6)), samples=6, free_samples=0)
    budget = 2 * task.max_tokens(6)
    new = plan_of_tests("half_precision_tests").new_judge
    scores = evaluate(model, task, Sequential(), config, seed=0, device="cpu", batch_tokens=budget, new_judge=new)
    batches = [len(batches_of(Cell(task, length, {}), config, budget)) for length in (4, 6)]
    assert sum(batches) > 4
    assert [tried.count(length) for length in (4, 6)] == (batches if settled else [1, 1])
    assert scores == evaluate(model, task, Sequential(), config, seed=0, device="cpu", batch_tokens=budget)
