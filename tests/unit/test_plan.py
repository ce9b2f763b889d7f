"""The plan: which parts of the engine are used, the true obstacle to each other part, and the models that it makes."""

import importlib.util
import itertools
import json
from dataclasses import replace

import pytest
import torch
from losses import token_losses
from torch import nn

from longreach.api import (
    AlibiConfig,
    Coupled,
    EntmaxConfig,
    EvalConfig,
    LearnedConfig,
    Lengths,
    LlamaConfig,
    OptimizerConfig,
    ParityScratchpad,
    RecurrentConfig,
    RopeConfig,
    ScaledSoftmaxConfig,
    Sequential,
    SlidingWindowConfig,
    SoftmaxConfig,
    TransformerConfig,
    XposConfig,
    build_model,
)
from longreach.attention import base
from longreach.engine import facts
from longreach.engine.plan import PARTS, Plan, choose
from longreach.engine.stacked_training import MultiSeedStream
from longreach.engine.stacking import member_state, stack_models
from longreach.errors import BadInput
from longreach.evaluation import evaluate
from longreach.evaluation.exact_match import judge
from longreach.execution import ExecutionConfig
from longreach.model import Transformer
from longreach.model.block import Block, SelfAttention
from longreach.training import TrainingStream, build_optimizer

TASK = ParityScratchpad()
NEOX = TransformerConfig(layers=2, width=64, heads=2)
AUTO = ExecutionConfig()
MODELS = {
    "neox": NEOX,
    "qk norm": replace(NEOX, norm_queries_and_keys=True),
    "id heads": replace(NEOX, id_heads=1),
    "kv heads": replace(NEOX, kv_heads=1),
    "partial rotary": replace(NEOX, encoding=RopeConfig(fraction=0.5)),
    "xpos": replace(NEOX, encoding=XposConfig()),
    "alibi": replace(NEOX, encoding=AlibiConfig()),
    "learned": replace(NEOX, encoding=LearnedConfig(max_id=40)),
    "loops": replace(NEOX, loops=2),
    "inject": replace(NEOX, loops=2, inject=True),
    "in turn": replace(NEOX, parallel_residual=False),
    "llama": LlamaConfig(layers=2, width=64, heads=2),
    "small heads": replace(NEOX, heads=8),
    "scaled": replace(NEOX, attention=ScaledSoftmaxConfig()),
    "window": replace(NEOX, attention=SlidingWindowConfig()),
    "entmax": replace(NEOX, attention=EntmaxConfig()),
    "recurrent": RecurrentConfig(layers=1, width=16),
}
EXECUTIONS = {
    "auto": AUTO,
    "plain": ExecutionConfig(engine="plain"),
    "no graph": ExecutionConfig(graph=False),
    "compile": ExecutionConfig(compile=True),
    "recompute": ExecutionConfig(recompute=True),
    "without": ExecutionConfig(without=["fused_layers", "recorded_steps", "first_layer_by_token"]),
}

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")


def new(name="neox", seed=0):
    return build_model(MODELS[name], len(TASK.vocabulary), seed, max_id=40)


def obstacles(name, device="cuda", precision="bf16", **execution):
    return choose(new(name), ExecutionConfig(**execution), device, precision).unused


@pytest.mark.parametrize("name", MODELS)
def test_a_part_is_used_exactly_if_there_is_no_reason_against_it(name):
    model = new(name)
    stack = [] if name == "recurrent" else [stack_models([model, model])]
    for one, execution, device, precision in itertools.product(
        (model, *stack), EXECUTIONS.values(), ("cpu", "cuda"), ("fp32", "bf16")
    ):
        plan = choose(one, execution, device, precision)
        assert [part for part in PARTS if part in plan.used] == list(plan.used)
        assert [part for part in PARTS if part not in plan.used] == list(plan.unused)
        assert all(plan.unused.values())
        assert not set(plan.used) & set(execution.without)
        if execution.engine == "plain":
            assert not plan.used


ON_A_CPU = ("first_layer_by_token", "cpu_rotation", "cpu_optimizer", "lockstep_decoding")
"""The parts of a model that is not trained: no batches are drawn."""
ELSEWHERE = {
    "flex_attention",
    "adasplash",
    "pointer_kernels",
    "known_frequencies",
    "cross_entropy_kernel",
    "compiled_layers",
    "recomputed_layers",
    "drawing_workers",
    "cpu_rotation",
    "cpu_batches",
    "cpu_optimizer",
    "lockstep_decoding",
}
ALL_ON_A_GPU = set(PARTS) - ELSEWHERE


@needs_triton
def test_the_parts_of_a_model_of_the_plainest_kind():
    assert set(choose(new(), AUTO, "cuda", "bf16").used) == ALL_ON_A_GPU
    assert set(choose(new(), AUTO, "cuda:1", "bf16").used) == ALL_ON_A_GPU
    assert choose(new(), AUTO, "cpu", "bf16").used == ON_A_CPU
    assert set(choose(stack_models([new(), new()]), AUTO, "cuda", "bf16").used) == ALL_ON_A_GPU
    assert set(obstacles("scaled")) == set(obstacles("neox"))


@needs_triton
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("neox", {"flex_attention": "scores have no bias", "adasplash": "attention is not entmax"}),
        (
            "qk norm",
            {
                "rotary_kernel": "queries and keys are normalised",
            },
        ),
        (
            "id heads",
            {
                "rotary_kernel": "id_heads replace queries and keys",
            },
        ),
        (
            "kv heads",
            {"short_attention": "heads share keys and values", "rotary_kernel": "heads share keys and values"},
        ),
        (
            "partial rotary",
            {
                "rotary_kernel": "only a part of each head is turned",
            },
        ),
        (
            "xpos",
            {
                "short_attention": "keys are turned by other angles than queries",
                "rotary_kernel": "keys are turned by other angles than queries",
            },
        ),
        (
            "alibi",
            {
                "short_attention": "scores have a bias",
                "rotary_kernel": "the encoding does not turn queries and keys",
                "flex_attention": "",
                "exact_attention": "scores have a bias",
            },
        ),
        (
            "learned",
            {
                "first_layer_by_token": "the encoding adds position IDs to the embeddings",
                "rotary_kernel": "the encoding does not turn queries and keys",
            },
        ),
        ("loops", {"fused_layers": "the model loops over its layers", "second_stream": "the model loops"}),
        (
            "inject",
            {"first_layer_by_token": "every loop reads the embedded input", "fused_layers": "the model loops"},
        ),
        ("in turn", {}),
        ("llama", {"gelu_products": "hidden units are gated"}),
        ("small heads", {"exact_attention": "heads have 8 dimensions"}),
        (
            "window",
            {
                "short_attention": "SlidingWindow is not a softmax over all keys before",
                "exact_attention": "attention is not a softmax over all keys before",
            },
        ),
        (
            "entmax",
            {
                "short_attention": "Entmax is not a softmax over all keys before",
                "exact_attention": "attention is not a softmax over all keys before",
                "half_precision_tests": "attention is computed in fp32 anyway, or there is none",
                "recorded_tests": "attention is computed in fp32 anyway, or there is none",
                "adasplash": "the package adasplash is not installed",
            },
        ),
    ],
)
def test_the_reason_names_the_obstacle(name, found, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda part, *args: None if part == "adasplash" else find(part))
    unused = obstacles(name)
    for part, reason in found.items():
        assert unused.get(part, "").startswith(reason), part
        assert bool(reason) == (part in unused), part
    expected = (set(PARTS) - ALL_ON_A_GPU - {part for part, reason in found.items() if not reason}) | {
        part for part, reason in found.items() if reason
    }
    if "fused_layers" in found:
        expected |= {"second_stream", "gelu_products"}
    assert set(unused) == expected


def test_a_recurrent_model_has_no_layers_to_replace():
    unused = obstacles("recurrent")
    for part in ("first_layer_by_token", "fused_layers", "short_attention", "rotary_kernel"):
        assert unused[part] == "Recurrent computes its states in a way of its own"
    assert unused["large_chunks"] == "the model has no attention"
    assert unused["half_precision_tests"] == "attention is computed in fp32 anyway, or there is none"
    assert obstacles("recurrent", recompute=True)["recomputed_layers"] == "the model is no transformer"
    used = choose(new("recurrent"), AUTO, "cuda").used
    assert {"recorded_steps", "recorded_decoding", "embedding_gradient"} <= set(used)


@needs_triton
def test_kernels_compute_in_fp32_at_most():
    unused = choose(new("alibi").double(), AUTO, "cuda").unused
    for part in ("fused_layers", "short_attention", "rotary_kernel", "flex_attention", "optimizer_kernels"):
        assert unused[part] == "weights are in float64"
    used = choose(new("alibi").double(), AUTO, "cpu").used
    assert used == ("first_layer_by_token", "cpu_optimizer", "lockstep_decoding")


def test_without_triton_there_are_no_kernels(monkeypatch):
    monkeypatch.setattr(facts, "HAS_TRITON", False)
    unused = obstacles("neox")
    for part in ("fused_layers", "short_attention", "rotary_kernel", "flex_attention", "optimizer_kernels"):
        assert unused[part] == "Triton is not installed"
    assert "recorded_steps" not in unused


@needs_triton
def test_wide_models_are_not_fused(monkeypatch):
    from longreach.engine import fused

    monkeypatch.setattr(fused, "WIDEST", 63)
    assert obstacles("neox")["fused_layers"] == "the width is above 63"


KERNELS = ("first_layer_by_token", "fused_layers", "short_attention", "rotary_kernel")


class OwnTransformer(Transformer):
    """A model of one's own."""


class OwnBlock(Block):
    """A layer of one's own."""


class OwnAttention(SelfAttention):
    """An attention of one's own."""


class OwnEmbedding(nn.Embedding):
    """An embedding of one's own."""


def test_classes_of_ones_own_compute_themselves():
    model = new()
    model.__class__ = OwnTransformer
    unused = choose(model, AUTO, "cuda").unused
    assert {unused[part] for part in KERNELS} == {"OwnTransformer computes its states in a way of its own"}
    model = new()
    model.blocks[1].__class__ = OwnBlock
    unused = choose(model, AUTO, "cuda").unused
    assert {unused[part] for part in KERNELS} == {"OwnBlock is a layer of another class"}
    model = new()
    model.blocks[1].attention.__class__ = OwnAttention
    assert all("another class" in choose(model, AUTO, "cuda").unused[part] for part in KERNELS)
    model = new()
    model.embed.__class__ = OwnEmbedding
    unused = choose(model, AUTO, "cuda").unused
    assert unused["embedding_gradient"] == "the embedding is of another class"
    assert unused["first_layer_by_token"] == "the first layer has a part of another class"


@pytest.mark.parametrize("part", ["", "embed", "blocks.1", "blocks.0.attention.mix", "head", "norm"])
def test_hooks_keep_what_they_see(part):
    model = new()
    seen = []
    with model.get_submodule(part).register_forward_hook(lambda *_: seen.append(part)):
        for device in ("cpu", "cuda"):
            unused = choose(model, AUTO, device).unused
            assert all(unused[kernel].startswith("a hook is registered on the model") for kernel in KERNELS)
        assert unused["recorded_tests"] == "a hook is registered on the model"
    assert choose(model, AUTO, "cpu").used == ON_A_CPU


@needs_triton
def test_settings_are_reasons():
    for part in ("recorded_steps", "optimizer_kernels", "second_stream", "recorded_tests", "recorded_decoding"):
        assert obstacles("neox", graph=False)[part] == "execution.graph is false"
    assert obstacles("neox")["compiled_layers"] == "execution.compile is false"
    compiled = obstacles("neox", compile=True)
    assert compiled["fused_layers"] == "layers are compiled"
    assert not {"compiled_layers", "embedding_gradient"} & set(compiled)
    assert "embedding_gradient" not in obstacles("neox", device="cpu", compile=True)
    recomputed = obstacles("neox", recompute=True)
    assert recomputed["fused_layers"] == recomputed["first_layer_by_token"] == "layers are recomputed"
    assert "recomputed_layers" not in recomputed
    plain = obstacles("neox", engine="plain")
    assert {plain[part] for part in ALL_ON_A_GPU} == {"execution.engine is plain"}
    assert plain["flex_attention"] == "scores have no bias"  # the first obstacle


@needs_triton
@pytest.mark.parametrize("part", sorted(ALL_ON_A_GPU))
def test_any_part_can_be_left_out(part):
    unused = obstacles("neox", without=[part])
    assert unused[part] == "execution.without names it"
    needing = {name for name, reason in unused.items() if reason == f"{part} is not used"}
    assert set(unused) == set(PARTS) - ALL_ON_A_GPU | {part} | needing
    assert needing == {
        "recorded_steps": {"optimizer_kernels", "second_stream", "batches_ahead"},
        "fused_layers": {"gelu_products", "second_stream"},
        "half_precision_tests": {"recorded_tests"},
    }.get(part, set())


@needs_triton
def test_no_second_stream_where_training_fuses_no_layers():
    assert "fp32" in obstacles("neox", precision="fp32")["second_stream"]
    assert "fused_layers" not in obstacles("neox", precision="fp32")  # of tests


def test_unknown_parts_are_refused():
    with pytest.raises(BadInput, match=r"execution.without: unknown part 'fused_layer'; did you mean fused_layers"):
        choose(new(), ExecutionConfig(without=["fused_layer"]), "cpu")


def test_a_plan_in_one_line_and_in_a_folder():
    line = "plan: cpu, fp32: first layer by token, cpu rotation, cpu optimizer, lockstep decoding"
    assert str(choose(new(), AUTO, "cpu")) == line
    plain = choose(new(), ExecutionConfig(engine="plain"), "cpu", "bf16")
    assert str(plain) == "plan: cpu, bf16: the reference core alone"
    for plan in (plain, choose(new(), AUTO, "cuda", "bf16")):
        assert "\n" not in str(plan)
        kept = json.loads(json.dumps(plan.to_plain()))
        assert {**kept["used"], **kept["not_used"]}.keys() == PARTS.keys()
        assert kept["used"] == {part: PARTS[part] for part in plan.used}
        assert kept["not_used"] == plan.unused
        assert (kept["device"], kept["precision"], kept["engine"]) == (plan.device, plan.precision, plan.engine)


def test_a_subclass_is_not_recomputed_behind_its_back():
    class Own(Transformer):
        pass

    model = new()
    model.__class__ = Own
    plan = choose(model, ExecutionConfig(recompute=True), "cpu")
    assert plan.unused["recomputed_layers"] == "Own computes its states in a way of its own"
    assert type(plan.training_model(model)) is Own


@pytest.mark.parametrize("name", ["compile", "recompute"])
def test_plain_goes_with_no_part_that_is_asked_for(name):
    with pytest.raises(ValueError, match=f"execution.{name} is a part of the engine"):
        ExecutionConfig(engine="plain", **{name: True})


def test_plain_is_the_model_itself():
    model = new()
    for device in ("cpu", "cuda"):
        plan = choose(model, ExecutionConfig(engine="plain"), device, "bf16")
        assert plan.training_model(model) is plan.test_model(model) is model
        assert "recorded_decoding" not in plan.used
        assert plan.new_judge(model, 100).func is judge
    assert "recorded_decoding" not in choose(model, AUTO, "cpu").used
    assert "recorded_decoding" in choose(model, AUTO, "cuda").used


@pytest.mark.parametrize("name", ["neox", "alibi", "entmax", "llama", "recurrent"])
def test_twins_share_weights_with_the_model(name):
    model = new(name)
    plan = Plan(device="cpu", precision="bf16", engine="auto", used=tuple(PARTS)[:7], unused={})
    for twin in (plan.training_model(model), plan.test_model(model)):
        assert twin is not model
        assert isinstance(twin, type(model))
        assert list(twin.state_dict()) == list(model.state_dict())
        pairs = list(zip(twin.parameters(), model.parameters(), strict=True))
        assert all(one is other for one, other in pairs)
        with torch.no_grad():
            twin.embed.weight += 1
        assert torch.equal(twin.state_dict()["embed.weight"], model.state_dict()["embed.weight"])
        model.load_state_dict(new(name, seed=1).state_dict())
        assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), model.parameters(), strict=True))
        model.double()
        assert {parameter.dtype for parameter in twin.parameters()} == {torch.float64}
        model.float()
    assert type(model) in (Transformer, type(new("recurrent")))  # untouched


def test_hooks_of_the_model_are_called_by_its_twin():
    model, tokens = new(), torch.ones(8, 20, dtype=torch.long)
    ids = torch.arange(20).expand(8, 1, 20)
    before, seen = [], []
    model.blocks[1].register_forward_hook(lambda *_: before.append(1))
    plan = choose(model, ExecutionConfig(compile=True, without=["compiled_layers"]), "cpu")
    twin = plan.training_model(model)
    assert twin is not model
    model.blocks[0].attention.mix.register_forward_hook(lambda *_: seen.append(1))
    twin(tokens, ids)
    assert (len(before), len(seen)) == (1, 1)


POLICY = Coupled(max_id=40)


def _steps(model, twin, steps=20):
    """Return the losses of training in float64, and the gradients of the last step."""
    config = OptimizerConfig(lr=3e-3)
    optimizer = build_optimizer(config, model)
    data, losses = TrainingStream(TASK, POLICY, (3, 4, 5, 6), 8, 0, "cpu"), []
    for step in range(steps):
        batch = data.batch(torch.tensor(step))
        optimizer.zero_grad()
        loss = token_losses(twin, batch.sample, batch.ids).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    assert losses[0].dtype == torch.float64
    return torch.stack(losses), [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("name", ["neox", "qk norm", "id heads", "kv heads", "alibi", "loops", "llama", "scaled"])
@pytest.mark.parametrize("part", ["first_layer_by_token", "recomputed_layers", "embedding_gradient", "large_chunks"])
def test_every_part_in_float64_trains_as_the_core_does(name, part, monkeypatch):
    properties = type("Properties", (), {"total_memory": 4 * 16 * 4000})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(base, "_SCORES", 1000)  # so that there are several chunks
    device = "cuda" if part == "large_chunks" else "cpu"
    plan = Plan(device=device, precision="fp32", engine="auto", used=(part,), unused={}, reads_states=name == "scaled")
    models = [new(name).double() for _ in range(2)]
    twin = plan.training_model(models[0])
    core = choose(models[1], ExecutionConfig(engine="plain"), "cpu").training_model(models[1])
    found, wanted = _steps(models[0], twin), _steps(models[1], core)
    assert found[0][-1] < found[0][0]
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-9, atol=1e-9)
    for one, other in zip(found[1], wanted[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["neox", "scaled", "llama"])
def test_a_stack_by_token_computes_what_each_model_does_alone(name):
    models = [new(name, seed).double() for seed in (0, 1)]
    stack = stack_models(models)
    plan = choose(stack, AUTO, "cpu")
    assert plan.used == ON_A_CPU
    twin = plan.training_model(stack)
    one = TrainingStream(TASK, POLICY, (5,), 8, 0, "cpu")
    batch = MultiSeedStream.of(one, (1,)).batch(torch.tensor(0))
    together = token_losses(twin, batch.sample, batch.ids)
    together.sum().backward()
    for number, model in enumerate(models):
        rows = slice(8 * number, 8 * number + 8)
        alone = token_losses(model, batch.sample.map(lambda x, rows=rows: x[rows]), batch.ids[rows])
        torch.testing.assert_close(together[rows], alone, rtol=1e-9, atol=1e-9)
        alone.sum().backward()
        for (key, one), other in zip(stack.named_parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one.grad[number], other.grad, rtol=1e-9, atol=1e-9, msg=key)
        assert member_state(twin, number).keys() == model.state_dict().keys()


@pytest.mark.parametrize("attention", [SoftmaxConfig(), ScaledSoftmaxConfig()], ids=["softmax", "scaled"])
def test_scores_of_a_plan_are_those_of_the_core(attention):
    model = build_model(replace(NEOX, attention=attention), len(TASK.vocabulary), 0)
    config = EvalConfig(lengths=Lengths((4, 9)), samples=20, free_samples=5)
    plan = choose(model, AUTO, "cpu")
    found = evaluate(model, TASK, Sequential(), config, 0, "cpu", new_judge=plan.new_judge, write=plan.write)
    assert found == evaluate(model, TASK, Sequential(), config, 0, "cpu")


def test_known_frequencies_are_those_of_the_encoding():
    config = TransformerConfig(layers=1, width=32, heads=2, encoding=RopeConfig(spectrum="random"))
    model = build_model(config, 5, 0, (0, 4))
    assert "known_frequencies" in choose(model, AUTO, "cuda").used
    plan = Plan(device="cpu", precision="fp32", engine="auto", used=("known_frequencies",), unused={})
    twin = plan.test_model(model)
    assert len(twin.encoding.known) == 2
    ids = torch.arange(12).view(1, 2, 6)
    for found, wanted in zip(*(one.encoding.rotation(ids, ids[..., :1]) for one in (twin, model)), strict=True):
        assert torch.equal(found, wanted)
