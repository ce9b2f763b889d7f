"""Biases of single pairs, and attention that adds them inside a kernel, against the plain path."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from catalogue import BIASES, label
from on_gpu import run_apart
from torch.nn.attention.flex_attention import create_block_mask

from longreach.api import (
    AlibiConfig,
    CopeConfig,
    EntmaxConfig,
    FireConfig,
    KerpleConfig,
    ScaledSoftmaxConfig,
    SlidingWindowConfig,
    T5Config,
    TransformerConfig,
    build_model,
)
from longreach.attention import base
from longreach.engine import facts, flex
from longreach.engine.plan import Plan, choose
from longreach.engine.stacking import stack_models
from longreach.execution import ExecutionConfig

every_bias = pytest.mark.parametrize("config", BIASES, ids=label)


def _model(config, levels=1, **settings):
    shape = TransformerConfig(layers=2, width=64, heads=4, encoding=config, **settings)
    model = build_model(shape, 11, 0, level_sizes=(0,) * levels)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # biases that make a difference
        for name, parameter in model.encoding.named_parameters():
            if name.endswith(("out", "offset", "weight")):
                parameter.normal_(generator=generator)
    return model


def _ids(levels, tokens=50, batch=2):
    """In no order, some near each other and some far, not from zero on."""
    generator = torch.Generator().manual_seed(levels)
    near = torch.randint(0, 40, (batch, levels, tokens), generator=generator)
    far = torch.randint(0, 3, (batch, levels, tokens), generator=generator) * 3000
    return near + far + 10**10  # counted from the first, they fit into 32 bits


def _all_pairs(by_pair, batch, heads, queries, keys):
    """Asked for all pairs at once, which broadcast, instead of one at a time."""
    numbers = [torch.arange(count, dtype=torch.int32) for count in (batch, heads, queries, keys)]
    shapes = [(-1, 1, 1, 1), (-1, 1, 1), (-1, 1), (-1,)]
    return by_pair(*(number.view(shape) for number, shape in zip(numbers, shapes, strict=True)))


@every_bias
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_biases_of_single_pairs_are_the_bias(config, levels):
    encoding, ids = _model(config, levels).encoding, _ids(levels)
    with torch.no_grad():
        queries = ids[:, :, 20:]
        found = _all_pairs(encoding.pair_bias(queries, ids), 2, 4, 30, 50)
        torch.testing.assert_close(found, encoding.bias(queries, ids), rtol=1e-5, atol=1e-5)


LEARNED = [config for config in BIASES if isinstance(config, T5Config | KerpleConfig)]


@pytest.mark.parametrize("config", LEARNED, ids=label)
@pytest.mark.parametrize("levels", [1, 2])
def test_their_gradients_are_the_gradients(config, levels):
    encoding, ids = _model(config, levels).encoding.double(), _ids(levels)
    factors = torch.randn(2, 4, 50, 50, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    by_pair = _all_pairs(encoding.pair_bias(ids, ids), 2, 4, 50, 50)
    found, wanted = (
        torch.autograd.grad((bias * factors).sum(), list(encoding.parameters()))
        for bias in (by_pair, encoding.bias(ids, ids))
    )
    for one, other in zip(found, wanted, strict=True):
        assert other.any()
        torch.testing.assert_close(one, other)


def test_attention_with_biases_of_pairs_is_attention():
    errors = run_apart(Path(__file__).with_name("check_flex.py"), "cpu")
    assert len(errors) == 3 * len(BIASES)
    for case, found in errors.items():
        assert max(found) < (0.01 if "bfloat16" in case else 1e-5), case


@pytest.mark.parametrize("tokens", [1, 127, 128, 129, 500])
def test_causal_blocks_are_what_torch_finds(tokens):
    ours = flex.causal_blocks(tokens, torch.device("cpu"))
    theirs = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, tokens, tokens, device="cpu")
    assert ours.seq_lengths == theirs.seq_lengths
    for kind in ("kv", "full_kv", "q", "full_q"):
        count, wanted = (getattr(blocks, f"{kind}_num_blocks") for blocks in (ours, theirs))
        assert torch.equal(count, wanted)
        for row in range(count.shape[2]):
            found, expected = (getattr(blocks, f"{kind}_indices")[0, 0, row] for blocks in (ours, theirs))
            some = slice(int(count[0, 0, row]))
            # in this order: kernels go through as many keys as there are, and leave out what comes after
            assert found[some].tolist() == expected[some].tolist()


@pytest.mark.parametrize(
    ("settings", "training", "used"),
    [
        ({"encoding": AlibiConfig()}, True, True),
        ({"encoding": T5Config()}, True, True),
        ({"encoding": KerpleConfig()}, True, True),
        ({"encoding": FireConfig()}, True, False),  # its net cannot be differentiated there
        ({"encoding": FireConfig()}, False, True),
        ({"encoding": CopeConfig(positions=5)}, False, False),  # not a function of IDs alone
        ({"encoding": AlibiConfig(), "attention": ScaledSoftmaxConfig()}, True, True),
        ({"encoding": AlibiConfig(), "attention": SlidingWindowConfig(window=3)}, True, False),
        ({"encoding": AlibiConfig(), "attention": EntmaxConfig()}, True, False),
    ],
    ids=label,
)
def test_where_it_is_used(monkeypatch, settings, training, used):
    calls = []
    monkeypatch.setattr(flex, "FROM", 5)
    monkeypatch.setattr(flex, "attend", lambda q, k, v, bias: calls.append(q.shape) or v)
    model = build_model(TransformerConfig(layers=1, width=64, heads=4, **settings), 7, 0)
    plan = choose(model, ExecutionConfig(), "cuda")
    twin = replace(plan, used=tuple(name for name in plan.used if name == "flex_attention")).test_model(model)
    tokens, ids = torch.zeros(1, 5, dtype=torch.long), torch.arange(5)[None, None]
    with torch.set_grad_enabled(training):
        twin(tokens, ids)
        twin(tokens[:, :4], ids[:, :, :4])  # too short
    assert calls == ([(1, 4, 5, 16)] if used else [])


FLEX = Plan(device="cpu", precision="fp32", engine="auto", used=("flex_attention",), unused={})


def test_masks_and_caches_are_left_to_the_plain_path(monkeypatch):
    calls = []
    monkeypatch.setattr(flex, "FROM", 1)
    monkeypatch.setattr(flex, "attend", lambda q, k, v, bias: calls.append(q.shape) or v)
    model = FLEX.test_model(_model(AlibiConfig()).eval())
    tokens, ids = torch.zeros(1, 5, dtype=torch.long), torch.arange(5)[None, None]
    model(tokens, ids, keep=torch.ones(1, 5, 5, dtype=torch.bool))
    cache = model.new_cache(1, slots=9)
    cache.fix()
    model(tokens, ids, cache)
    assert calls == []  # it sees all keys before, and nothing else
    model(tokens, ids)
    assert calls


@pytest.mark.parametrize("config", [T5Config(), KerpleConfig()], ids=label)
def test_sums_in_any_order_are_not_deterministic(monkeypatch, config):
    encoding, ids = _model(config).encoding, _ids(1)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert encoding.pair_bias(ids, ids) is None
    with torch.no_grad():
        assert encoding.pair_bias(ids, ids) is not None


def test_stacked_tables_go_by_parts():
    stack, ids = stack_models([_model(T5Config()), _model(T5Config())]), _ids(1)
    assert stack.encoding.pair_bias(ids, ids) is None
    stack = stack_models([_model(AlibiConfig()), _model(AlibiConfig())])
    assert stack.encoding.pair_bias(ids, ids) is not None


@pytest.mark.parametrize(
    ("size", "dtype", "reason"),
    [
        (32, torch.float32, ""),
        (128, torch.bfloat16, ""),
        (64, torch.float16, ""),
        (24, torch.float32, "heads have 24 dimensions"),
        (8, torch.float32, "heads have 8 dimensions"),
        (32, torch.float64, "weights are in float64"),
    ],
)
def test_which_queries_it_is_planned_for(monkeypatch, size, dtype, reason):
    monkeypatch.setattr(facts, "HAS_TRITON", True)
    config = TransformerConfig(layers=1, width=2 * size, heads=2, encoding=AlibiConfig())
    model = build_model(config, 7, 0).to(dtype)
    assert choose(model, ExecutionConfig(), "cpu").unused["flex_attention"] == "needs a GPU"
    assert choose(model, ExecutionConfig(), "cuda").unused.get("flex_attention", "") == reason
    monkeypatch.setattr(facts, "HAS_TRITON", False)
    assert choose(model, ExecutionConfig(), "cuda").unused["flex_attention"] == "Triton is not installed"


def test_chunks_grow_with_the_memory_of_a_gpu(monkeypatch):
    class Properties:
        total_memory = 0

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    model = _model(AlibiConfig())
    plan = Plan(device="cuda", precision="fp32", engine="auto", used=("large_chunks",), unused={})
    rooms = []
    for Properties.total_memory in (8 << 30, 40 << 30, 80 << 30, 140 << 30):
        rooms += {block.attention.mix.room for block in plan.test_model(model).blocks}
        assert rooms[-1] * 4 <= Properties.total_memory // 16
    assert rooms == sorted(set(rooms))
    assert len(rooms) == 4
    assert {block.attention.mix.room for block in model.blocks} == {None}


@pytest.mark.parametrize(
    ("copies", "room", "parts"),
    [(1, None, 3), (1, 10**9, 3), (4, None, 10), (4, 4 * 5 * 80, 4), (4, 10**9, 3)],
)
def test_a_chunk_has_room_for_the_copies_of_its_bias(monkeypatch, copies, room, parts):
    """A query has 80 scores.  The limit on scores holds whatever the room."""
    made = []
    monkeypatch.setattr(base, "_SCORES", 8 * 80)  # of 8 queries
    monkeypatch.setattr(base, "recomputed", lambda mix, part: made.append(part) or mix(part))
    encoding, ids = _model(AlibiConfig()).encoding, _ids(1, tokens=20, batch=1)
    q = torch.zeros(1, 4, 20, 16)
    attention, bias = base.Attention(), encoding.score_bias(ids, ids)
    attention.room, bias.copies = room, copies
    attention(q, q, q, torch.arange(1, 21)[None], None, bias)
    assert len(made) == parts
