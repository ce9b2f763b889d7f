"""Spoilt IDs, shifted IDs, and how errors are counted."""

from dataclasses import replace

import pytest
import torch
from helpers import TINY, draw, execute_in

from longreach.api import (
    Coupled,
    EvalConfig,
    IdLoss,
    LearnedRopeConfig,
    Lengths,
    OptimizerConfig,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RopeConfig,
    RunConfig,
    ScaledSoftmaxConfig,
    Sequential,
    ShawConfig,
    Span,
    TableConfig,
    TrainConfig,
    TransformerConfig,
    VariableAssignment,
)
from longreach.errors import BadInput
from longreach.evaluation import evaluate
from longreach.evaluation.controls import spoil
from longreach.runs import check, load_model


class FarAway(ParityScratchpad):
    """Its answers stand where nothing of the prompt does."""

    def coupling(self, sample, form):
        index = torch.arange(sample.tokens.shape[1])
        return super().coupling(sample, form) + 5 * (index >= sample.prompt_tokens[:, None])[:, None]


TASK = VariableAssignment(num_names=40, hops=Span(2, 2))


def test_shuffled_ids_are_those_of_the_prompt_in_another_order():
    sample = draw(TASK, [6, 9])
    policy = Predicted(max_id=99)
    plain, spoilt = policy.assign(TASK, sample), spoil(policy, "shuffled").assign(TASK, sample)
    for row in range(2):
        size = int(sample.prompt_tokens[row])
        pairs = [sorted(map(tuple, ids[row, :, :size].T.tolist())) for ids in (plain, spoilt)]
        assert pairs[0] == pairs[1]
        assert not torch.equal(plain[row, :, :size], spoilt[row, :, :size])
        assert torch.equal(plain[row, :, size:], spoilt[row, :, size:])


def test_ids_off_by_one_are_those_of_the_token_before():
    sample = draw(TASK, [6, 9])
    policy = Predicted(max_id=99)
    plain, spoilt = policy.assign(TASK, sample), spoil(policy, "off_by_one").assign(TASK, sample)
    size = int(sample.prompt_tokens[1])
    assert torch.equal(spoilt[1, :, 1:size], plain[1, :, : size - 1])
    assert spoil(policy, "none") is policy


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that makes no mistakes at training lengths."""
    config = RunConfig(
        task=ParityScratchpad(),
        ids=Predicted(max_id=120),
        model=TransformerConfig(
            layers=2,
            width=64,
            heads=2,
            encoding=RopeConfig(spectrum="random"),
            attention=ScaledSoftmaxConfig(),
            position_head=PointerConfig(),
        ),
        train=TrainConfig(lengths=Span(1, 8), steps=150, batch_size=32, optimizer=OptimizerConfig(lr=4e-3, warmup=20)),
        evaluate=EvalConfig(lengths=Lengths((6,)), samples=8, free_samples=8),
    )
    folder = execute_in(tmp_path_factory.mktemp("parity") / "run", config)
    return load_model(folder)


def _rates(trained, **settings):
    config, model = trained
    asked = EvalConfig(lengths=Lengths((6,)), samples=64, free_samples=64, **settings)
    return {score.metric: score.rate for score in evaluate(model, config.task, config.ids, asked, 0, "cpu")}


def test_a_result_that_rests_on_ids_breaks_without_them_and_survives_a_shift(trained):
    plain = _rates(trained)
    assert plain["token_em_free"] == plain["token_id_em_tf"] == plain["id_accuracy"] == 1
    assert plain["error_token_first"] == plain["error_id_first"] == 0
    assert not any(metric.startswith("first_error") for metric in plain)
    for control in ("shuffled", "off_by_one"):
        spoilt = _rates(trained, control=control)
        assert spoilt["token_em_free"] < 0.3
        wrong = spoilt["error_token_first"] + spoilt["error_id_first"]
        places = sum(rate for metric, rate in spoilt.items() if metric.startswith("first_error"))
        assert places == pytest.approx(wrong)
        assert wrong >= 1 - spoilt["token_em_free"]
    assert _rates(trained, shift=1_000_000) == plain
    assert _rates(trained, prompt_ids_only=True) == plain


def test_the_card_says_who_supplies_the_ids(trained, tmp_path):
    config, _ = trained
    config = replace(config, train=replace(config.train, steps=1), evaluate=replace(config.evaluate, free_samples=0))
    card = execute_in(tmp_path / "run", config).card()
    assert card.ids_supplied_by == "a rule in the prompt, the model itself in the answer"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ids": Predicted(max_id=99)}, "needs model.position_head: pointer or table"),
        (
            {"ids": Sequential(), "model": replace(TINY, position_head=PointerConfig())},
            "which ids sequential does not use",
        ),
        (
            {"train": TrainConfig(lengths=Span(4, 8), objectives=[IdLoss(weight=2.0)])},
            "train.objectives: predicted_ids needs model.position_head: pointer or table",
        ),
        ({"evaluate": EvalConfig(prompt_ids_only=True)}, "prompt_ids_only concerns predicted IDs"),
        (
            {"ids": Coupled(max_id=99), "task": TASK},
            "`predicted` lets the model supply them",
        ),
        (
            {"ids": Predicted(max_id=99), "model": replace(TINY, position_head=TableConfig())},
            "knows only differences",
        ),
        (
            {
                "task": FarAway(),
                "ids": Predicted(max_id=99),
                "model": replace(TINY, position_head=PointerConfig()),
            },
            "cannot reach all IDs",
        ),
        (
            {
                "ids": Predicted(max_id=99),
                "model": replace(TINY, position_head=TableConfig(), encoding=LearnedRopeConfig(max_id=200)),
                "evaluate": EvalConfig(lengths=Lengths((150,)), samples=4, free_samples=4),
            },
            "beyond the table, which ends at 99",
        ),
        (
            {
                "ids": Predicted(max_id=99),
                "model": replace(TINY, position_head=TableConfig(), encoding=LearnedRopeConfig(max_id=40)),
            },
            "training IDs go up to 99, the table ends at 40",
        ),
        (
            {
                "ids": Coupled(max_id=99),
                "model": replace(TINY, encoding=LearnedRopeConfig()),
                "evaluate": EvalConfig(lengths=Lengths((8,)), samples=4, free_samples=4, shift=200),
            },
            "beyond the table, which ends at 99",
        ),
        (
            {
                "ids": Coupled(max_id=99),
                "model": replace(TINY, encoding=LearnedRopeConfig()),
                "evaluate": EvalConfig(lengths=Lengths((8,)), samples=4, free_samples=4, shift=-3),
            },
            "below the table",
        ),
        (
            {"evaluate": EvalConfig(lengths=Lengths((8,)), samples=4, free_samples=4, encoding=ShawConfig())},
            "encoding shaw has other weights than rope",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_training(changes, complaint):
    config = RunConfig(
        task=ParityScratchpad(),
        train=TrainConfig(lengths=Span(4, 8)),
        evaluate=EvalConfig(lengths=Lengths((8,)), samples=4, free_samples=4),
    )
    with pytest.raises(BadInput, match=complaint):
        check(replace(config, **changes))


def test_a_sample_is_shuffled_alike_in_every_batch():
    sample = draw(TASK, [6, 9, 7])
    policy = spoil(Predicted(max_id=99), "shuffled")
    whole = policy.assign(TASK, sample)
    assert torch.equal(policy.assign(TASK, sample.rows(1, 2))[0], whole[1])


@pytest.mark.parametrize("setting", [{"weight": -1.0}, {"feed_predicted": 2.0}, {"feed_from": 0.2}], ids=str)
def test_impossible_objectives_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        IdLoss(**setting)


def test_relabelled_tests_go_with_no_control():
    with pytest.raises(ValueError, match="neither control nor shift"):
        EvalConfig(relabel_ids=True, free_samples=0, shift=3)
    with pytest.raises(ValueError, match="concerns generation"):
        EvalConfig(free_samples=0, prompt_ids_only=True)
