"""A stack of models computes what each of them computes alone."""

from dataclasses import replace

import pytest
import torch
from losses import losses

from longreach.api import (
    AlibiConfig,
    AsEntmaxConfig,
    Coupled,
    IdLoss,
    LearnedConfig,
    LlamaConfig,
    OptimizerConfig,
    ParityScratchpad,
    PointerConfig,
    Pose,
    Predicted,
    PrimeConfig,
    RopeConfig,
    ScaledSoftmaxConfig,
    Span,
    SparseParity,
    TableConfig,
    TrainConfig,
    TransformerConfig,
    VariableAssignment,
    build_model,
)
from longreach.config.registry import entries
from longreach.engine.stacked_training import MultiSeedStream, StackedStep, StackedStream, clip_each
from longreach.engine.stacking import member_state, stack_models
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.positions.ids import Sequential
from longreach.training import Hooks, Step, build_optimizer, train
from longreach.training.step import clip_gradients

SEEDS = (3, 1, 4)
PARITY = ParityScratchpad()
ASSIGNMENT = VariableAssignment(num_names=20)
POINTER = {"position_head": PointerConfig(), "attention": ScaledSoftmaxConfig()}
CASES = {
    "plain": (PARITY, Sequential(), TransformerConfig(layers=2, width=16, heads=2)),
    "scaled, normalised, tied": (
        PARITY,
        Coupled(max_id=30),
        TransformerConfig(
            layers=2,
            width=16,
            heads=2,
            norm_queries_and_keys=True,
            tie_embeddings=True,
            attention=ScaledSoftmaxConfig(),
        ),
    ),
    "no biases": (PARITY, Sequential(), TransformerConfig(layers=1, width=16, heads=2, biases=False)),
    "llama": (PARITY, Coupled(max_id=30), LlamaConfig(layers=2, width=16, heads=4, kv_heads=2)),
    "llama with a pointer": (ASSIGNMENT, Predicted(max_id=40), LlamaConfig(layers=1, width=16, heads=2, **POINTER)),
    "pointer": (ASSIGNMENT, Predicted(max_id=40), TransformerConfig(layers=1, width=16, heads=2, **POINTER)),
    "kind first, heads by ID": (
        ASSIGNMENT,
        Predicted(max_id=40),
        TransformerConfig(
            layers=2, width=16, heads=4, id_heads=2, position_head=PointerConfig(kind_first=True), encoding=RopeConfig()
        ),
    ),
    "table": (
        ASSIGNMENT,
        Predicted(max_id=40),
        TransformerConfig(layers=1, width=16, heads=2, encoding=LearnedConfig(), position_head=TableConfig(tied=True)),
    ),
    "looped, biases, entmax": (
        PARITY,
        Sequential(),
        TransformerConfig(
            layers=1, loops=2, inject=True, width=16, heads=2, encoding=AlibiConfig(), attention=AsEntmaxConfig()
        ),
    ),
    "copy and dependency heads": (
        ASSIGNMENT,
        Sequential(),
        TransformerConfig(layers=1, width=16, heads=2, copy_head=True, dependency_head=True),
    ),
    "copy head by cosines, pointer without tokens added": (
        ASSIGNMENT,
        Predicted(max_id=40),
        TransformerConfig(
            layers=1,
            width=16,
            heads=2,
            copy_head=True,
            copy_scores="cosine",
            position_head=PointerConfig(add_token=False),
        ),
    ),
    "PoSE with bounded levels": (
        ASSIGNMENT,
        Pose(max_id=60, bounded_levels=True),
        TransformerConfig(layers=1, width=16, heads=2),
    ),
}


REFUSED = {"cope", "fire", "kerple", "shaw", "transformer_xl"}


def built(task, policy, config, seed):
    return build_model(config, len(task.vocabulary), seed, policy.level_sizes(task), policy.max_id)


def batches(task, policy, seeds, size=6, prime=None):
    return MultiSeedStream(task, policy, (3, 4, 5, 6), size, seeds[0], "cpu", prime, tuple(seeds[1:]))


def new_step(model, data, config, accumulate=1, shares=None):
    optimizer = build_optimizer(config.optimizer, model)
    if data.models == 1:
        return Step(model, optimizer, data, config, accumulate)
    return StackedStep(model, optimizer, data, config, accumulate, shares)


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_each_model(name):
    task, policy, config = CASES[name]
    models = [built(task, policy, config, seed).double() for seed in SEEDS]
    stacked = stack_models(models)
    together = batches(task, policy, SEEDS).batch(2)

    def total(model, batch):
        return torch.stack([*losses(model, batch.sample, batch.ids, task=task).values()]).sum()

    total(stacked, together).backward()
    gradients = {name: parameter.grad for name, parameter in stacked.named_parameters()}
    for number, (seed, model) in enumerate(zip(SEEDS, models, strict=True)):
        alone = batches(task, policy, (seed,)).batch(2)
        rows = slice(6 * number, 6 * number + 6)
        assert torch.equal(together.sample.tokens[rows], alone.sample.tokens)
        assert torch.equal(together.ids[rows], alone.ids)
        total(model, alone).backward()
        for key, parameter in model.named_parameters():
            got = gradients[key]
            assert (parameter.grad is None) == (got is None)
            if got is not None:
                torch.testing.assert_close(got[number], parameter.grad, rtol=1e-9, atol=1e-12)
        for key, tensor in member_state(stacked, number).items():
            assert torch.equal(tensor, model.state_dict()[key])


@pytest.mark.parametrize("encoding", sorted(entries("encoding")))
def test_every_encoding_is_stacked_right_or_refused(encoding):
    cls = entries("encoding")[encoding]
    policy = Coupled(max_id=30)
    config = TransformerConfig(layers=2, width=16, heads=2, encoding=cls())
    models = [built(PARITY, policy, config, seed).double() for seed in SEEDS]
    if encoding in REFUSED:
        with pytest.raises(BadInput, match="cannot be stacked"):
            stack_models(models)
        return
    stacked = stack_models(models)
    batch = batches(PARITY, policy, SEEDS).batch(0)
    together = stacked(batch.sample.tokens, batch.ids)
    for number, model in enumerate(models):
        rows = slice(6 * number, 6 * number + 6)
        torch.testing.assert_close(
            together[rows], model(batch.sample.tokens[rows], batch.ids[rows]), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize("accumulate", [1, 3])
def test_each_model_follows_its_own_loss_curve(accumulate):
    task, policy, config = CASES["pointer"]
    prime = PrimeConfig(lengths=Span(9, 10), share=0.3, samples=4)
    settings = TrainConfig(
        lengths=Span(3, 6),
        steps=12,
        batch_size=6,
        objectives=[IdLoss(weight=0.5, feed_predicted=0.3)],
        optimizer=OptimizerConfig(lr=3e-3, warmup=2, clip=0.5),
    )

    def curves(models, seeds):
        logs = [[] for _ in seeds]
        hooks = [
            Hooks(
                log=lambda done, values, log=log: log.append((values["loss"], values["id_loss"], values["grad_norm"])),
                validate=lambda done: 0.0,
                save=lambda done, score: None,
                progress=lambda done, loss: None,
                should_stop=lambda: False,
            )
            for log in logs
        ]
        model = models[0] if len(models) == 1 else stack_models(models)
        step = new_step(model, batches(task, policy, seeds, 6, prime), settings, accumulate)
        train(step, settings, ExecutionConfig(log_every=1), hooks)
        return logs, model

    together, stacked = curves([built(task, policy, config, seed) for seed in SEEDS], SEEDS)
    for number, seed in enumerate(SEEDS):
        alone, model = curves([built(task, policy, config, seed)], (seed,))
        torch.testing.assert_close(torch.tensor(together[number]), torch.tensor(alone[0]), rtol=2e-4, atol=2e-5)
        for key, tensor in member_state(stacked, number).items():
            torch.testing.assert_close(tensor, model.state_dict()[key], rtol=1e-3, atol=1e-4)


def test_a_model_that_blows_up_leaves_the_others_alone():
    task, policy, config = CASES["plain"]
    settings = TrainConfig(lengths=Span(3, 6), steps=5, batch_size=6)
    told, logs = [], [[] for _ in SEEDS]
    hooks = [
        Hooks(
            log=lambda done, values, log=log: log.append(values["loss"]),
            validate=lambda done: 0.0,
            save=lambda done, score: None,
            progress=lambda done, loss: None,
            should_stop=lambda: False,
            give_up=lambda reason, number=number: told.append((number, reason)),
        )
        for number, log in enumerate(logs)
    ]
    models = [built(task, policy, config, seed) for seed in SEEDS]
    with torch.no_grad():
        models[1].blocks[0].attention.qkv.weight.fill_(torch.inf)
    stacked = stack_models(models)
    step = new_step(stacked, batches(task, policy, SEEDS), settings)
    assert train(step, settings, ExecutionConfig(log_every=1), hooks)
    assert [number for number, _ in told] == [1]
    assert "became nan at step 1" in told[0][1]
    assert [len(log) for log in logs] == [5, 0, 5]


def test_gradients_are_clipped_model_by_model():
    parameters = [torch.nn.Parameter(torch.zeros(2, *shape)) for shape in ((3, 4), (5,), ())]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
        parameter.grad[1] *= 100
    alone = [[torch.nn.Parameter(p.detach()[number].clone()) for p in parameters] for number in range(2)]
    for number in range(2):
        for mine, parameter in zip(alone[number], parameters, strict=True):
            mine.grad = parameter.grad[number].clone()
    norms = clip_each(parameters, 5.0, 2)
    for number in range(2):
        torch.testing.assert_close(norms[number], clip_gradients(alone[number], 5.0))
        for mine, parameter in zip(alone[number], parameters, strict=True):
            torch.testing.assert_close(parameter.grad[number], mine.grad)
    assert float(norms[0]) < 5 < float(norms[1])


def test_models_with_other_rates_ids_and_data_train_as_if_alone():
    """Sparse parity with other k, lengths and IDs, at other rates; a dependency head reads off what answers need."""
    config = TransformerConfig(layers=2, width=16, heads=2, dependency_head=True)
    task, other = SparseParity(k=Span(1, 3)), SparseParity(k=Span(2, 2))
    streams = (
        MultiSeedStream(task, Sequential(), (6, 8, 12), 4, 3, "cpu", more_seeds=(1,)),
        MultiSeedStream(other, Pose(max_id=40), (12,), 4, 4, "cpu"),
    )
    rates, settings = (1e-2, 1e-3, 4e-3), OptimizerConfig(lr=1e-2, warmup=2, weight_decay=0.5)
    members = [build_model(config, len(task.vocabulary), seed).double() for seed in SEEDS]

    def steps(model, data, optimizer_config, shares=None):
        step = new_step(model, data, TrainConfig(steps=9, optimizer=optimizer_config), shares=shares)
        return torch.stack([step(number)[:, 0] for number in range(5)], dim=1)

    together = stack_models(members)
    losses = steps(together, StackedStream(streams), settings, [rate / settings.lr for rate in rates])
    alone = [replace(streams[0], more_seeds=()), replace(streams[0], seed=1, more_seeds=()), streams[1]]
    for number, (model, data, rate) in enumerate(zip(members, alone, rates, strict=True)):
        own = steps(model, data, replace(settings, lr=rate))
        torch.testing.assert_close(losses[number], own[0], rtol=1e-6, atol=1e-6)
        for name, weight in member_state(together, number).items():
            torch.testing.assert_close(weight, model.state_dict()[name], rtol=1e-7, atol=1e-9, msg=name)


def test_what_is_not_equally_wide_is_refused():
    first = MultiSeedStream(PARITY, Sequential(), (4,), 4, 0, "cpu")
    for other in (replace(first, lengths=(5,)), replace(first, task=SparseParity()), replace(first, batch_size=8)):
        with pytest.raises(BadInput, match="cannot be trained as one"):
            StackedStream((first, other))
