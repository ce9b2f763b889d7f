"""Biases of single pairs, and attention that adds them inside a kernel, against the plain path."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from catalogue import BIASES, label
from on_gpu import OnGpu
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
from longreach.engine import flex
from longreach.engine.stacking import stack_models

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


def _errors(device):
    # torch reads the source of what it compiles, and shape checks would stand in its way
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("check_flex.py")), device], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_attention_with_biases_of_pairs_is_attention():
    errors = _errors("cpu")
    assert len(errors) == 3 * len(BIASES)
    for case, found in errors.items():
        assert max(found) < (0.01 if "bfloat16" in case else 1e-5), case


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_kernel_on_a_gpu():
    errors = _errors("cuda")
    assert len(errors) == 3 * len(BIASES)
    for case, found in errors.items():
        # values, gradients of queries, keys and values, and of weights, which are sums of what nearly cancels
        bounds = (0.01, 0.02, 0.15) if "bfloat16" in case else (1e-5, 1e-4, 1e-3)  # tf32 would be off by more
        for errors_of, most in zip((found[:1], found[1:4], found[4:]), bounds, strict=True):
            assert all(error < most for error in errors_of), case


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
    monkeypatch.setattr(flex, "serves", lambda q: True)
    monkeypatch.setattr(flex, "attend", lambda q, k, v, bias: calls.append(q.shape) or v)
    model = build_model(TransformerConfig(layers=1, width=64, heads=4, **settings), 7, 0)
    tokens, ids = torch.zeros(1, 5, dtype=torch.long), torch.arange(5)[None, None]
    with torch.set_grad_enabled(training):
        model(tokens, ids)
    assert calls == ([(1, 4, 5, 16)] if used else [])


def test_masks_and_caches_are_left_to_the_plain_path(monkeypatch):
    monkeypatch.setattr(flex, "serves", lambda q: True)
    calls = []
    monkeypatch.setattr(flex, "attend", lambda q, k, v, bias: calls.append(q.shape) or v)
    model = _model(AlibiConfig()).eval()
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
    ("tokens", "size", "dtype", "serves"),
    [
        (flex.FROM, 32, torch.float32, True),
        (flex.FROM, 128, torch.bfloat16, True),
        (flex.FROM, 64, torch.float16, True),
        (flex.FROM - 1, 32, torch.float32, False),
        (flex.FROM, 24, torch.float32, False),
        (flex.FROM, 8, torch.float32, False),
        (flex.FROM, 32, torch.float64, False),
    ],
)
def test_which_queries_it_serves(monkeypatch, tokens, size, dtype, serves):
    monkeypatch.setattr(flex, "HAS_TRITON", True)
    queries = torch.empty(1, 1, tokens, size, dtype=dtype)
    assert not flex.serves(queries)
    assert flex.serves(queries.as_subclass(OnGpu)) is serves
    monkeypatch.setattr(flex, "HAS_TRITON", False)
    assert not flex.serves(queries.as_subclass(OnGpu))


def test_parts_grow_with_the_memory_of_a_gpu(monkeypatch):
    class Properties:
        total_memory = 0

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    sizes = []
    for Properties.total_memory in (8 << 30, 40 << 30, 80 << 30, 140 << 30):
        assert base._most_scores(1, gpu) == base._SCORES  # without a bias a part is as large as elsewhere
        sizes.append(base._most_scores(8, gpu))
    assert sizes[0] == base._most_scores(8, cpu) == base._SCORES // 8
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= base._SCORES
    assert sizes[-1] * 8 * 4 <= (140 << 30) // base._SHARE
