"""Objectives: the terms of the loss, what is refused, and one of a user's own."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from helpers import TINY, draw, execute_in

from longreach.api import (
    DependencyLoss,
    EvalConfig,
    IdLoss,
    Lengths,
    Objective,
    OptimizerConfig,
    ParityScratchpad,
    PointerConfig,
    Predicted,
    RunConfig,
    Sequential,
    Span,
    Task,
    TokenLoss,
    TrainConfig,
    build_model,
    stream,
)
from longreach.cli.main import main
from longreach.config import build, to_plain
from longreach.errors import BadInput
from longreach.execution import ExecutionConfig
from longreach.objectives import Batch, base, resolve_objectives, terms, token_targets, upgrade_objective
from longreach.runs import Observer, RunFolder, check
from longreach.training import list_checkpoints

TASK = ParityScratchpad()
CONFIG = RunConfig(
    task=TASK,
    model=TINY,
    train=TrainConfig(lengths=Span(1, 6), steps=12, batch_size=8, optimizer=OptimizerConfig(warmup=2)),
    evaluate=EvalConfig(lengths=Lengths((4,)), samples=4, free_samples=2),
    execution=ExecutionConfig(log_every=1, save_every=5),
)
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True, kw_only=True)
class ZLoss(Objective):
    """The square of log Z of the token logits."""

    logged_as = "z_loss"

    def losses(self, model, forward):
        return forward.sum_over_logits(lambda logits, labels: logits.logsumexp(-1).square().masked_fill(labels < 0, 0))


@dataclass(frozen=True, kw_only=True)
class Secretive(ParityScratchpad):
    """Does not say what its answers depend on."""

    depends_on = Task.depends_on


@dataclass(frozen=True, kw_only=True)
class Nameless(Objective):
    """Says neither its name nor its losses."""


def _with(*objectives, **changes):
    return replace(CONFIG, train=replace(CONFIG.train, objectives=list(objectives)), **changes)


def _batch():
    sample = draw(TASK, [3, 6, 5])
    draws = stream(0, "ids", torch.arange(3))
    return Batch(sample, Sequential().training_ids(TASK, sample, draws), draws, TASK)


def test_every_model_has_the_token_loss_and_the_losses_of_its_heads():
    def names(model, *listed):
        return [objective.metric for objective in resolve_objectives(listed, build_model(model, 9, 0))]

    assert names(TINY) == ["loss"]
    assert names(replace(TINY, dependency_head=True, position_head=PointerConfig())) == [
        "loss",
        "dependency_loss",
        "id_loss",
    ]
    assert names(replace(TINY, dependency_head=True), ZLoss()) == ["loss", "dependency_loss", "z_loss"]
    assert names(TINY, Nameless(), TokenLoss(weight=0.5)) == ["loss", "Nameless"]
    listed = resolve_objectives([IdLoss(weight=3.0)], build_model(replace(TINY, position_head=PointerConfig()), 9, 0))
    assert [objective.weight for objective in listed] == [1.0, 3.0]


def test_terms_have_names_and_weights_and_share_one_forward_pass(monkeypatch):
    model, batch = build_model(TINY, len(TASK.vocabulary), 0).double(), _batch()
    passes, computed = [], []
    model.register_forward_hook(lambda *_: passes.append(1))
    logits_of = model.logits
    monkeypatch.setattr(model, "logits", lambda *args: computed.append(1) or logits_of(*args))
    found = terms([TokenLoss(), ZLoss(weight=0.1)], model, batch)
    assert {name: term.weight for name, term in found.items()} == {"tokens": 1.0, "test_objectives.ZLoss": 0.1}
    assert (len(passes), len(computed)) == (1, 1)
    tokens = batch.sample.tokens
    logits = model.all_logits(tokens[:, :-1], batch.ids[:, :, :-1])
    wanted = token_targets(batch.sample)
    expected = logits.logsumexp(-1).square().masked_fill(~wanted, 0).sum(1)
    torch.testing.assert_close(found["test_objectives.ZLoss"].losses, expected)
    right = logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0].masked_fill(~wanted, 0)
    torch.testing.assert_close(found["tokens"].losses, -right.sum(1))
    monkeypatch.setattr(base, "_LOGITS", 3 * len(TASK.vocabulary) * 2)  # two places at a time
    in_parts = terms([TokenLoss(), ZLoss(weight=0.1)], model, batch)
    for name, term in in_parts.items():
        torch.testing.assert_close(term.losses, found[name].losses)


def test_an_objective_of_ones_own_trains_is_logged_and_resumes(tmp_path):
    config = build(RunConfig, to_plain(_with(ZLoss(weight=0.1))))
    assert config.train.objectives == [ZLoss(weight=0.1)]
    check(config)
    whole = execute_in(tmp_path / "whole", config)
    lines = [line for line in whole.metrics() if "loss" in line]
    assert len(lines) == 12
    assert lines[-1]["z_loss"] < lines[0]["z_loss"]
    asked = iter(range(100))
    parts = execute_in(tmp_path / "parts", config, observer=Observer(should_stop=lambda: next(asked) == 6))
    assert not parts.finished
    execute_in(tmp_path / "parts", config, resume=True)
    ends = [list_checkpoints(folder.checkpoints)[-1].path.read_bytes() for folder in (whole, parts)]
    assert ends[0] == ends[1]
    without = execute_in(tmp_path / "without", CONFIG)
    assert list_checkpoints(without.checkpoints)[-1].path.read_bytes() != ends[0]
    assert without.metrics()[0]["loss"] == lines[0]["loss"]


def test_accumulated_parts_give_the_gradient_of_all_terms(tmp_path):
    config = _with(ZLoss(weight=0.1), model=replace(TINY, dependency_head=True))
    folders = [
        execute_in(tmp_path / str(parts), replace(config, execution=ExecutionConfig(log_every=1, accumulate=parts)))
        for parts in (1, 4)
    ]
    names = ("loss", "z_loss", "dependency_loss", "grad_norm")
    one, four = ([line[name] for line in folder.metrics() if "loss" in line for name in names] for folder in folders)
    assert four == pytest.approx(one, rel=1e-4)


def test_a_recipe_names_the_example_by_its_import_path(tmp_path, monkeypatch, capsys):
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(
        "task: copy\n"
        "model: {layers: 1, width: 16, heads: 2}\n"
        "train: {lengths: 1..4, steps: 3, batch_size: 4, objectives: [examples.my_objective.ZLoss]}\n"
        "evaluate: {lengths: [3], samples: 2, free_samples: 1}\n"
    )
    command = ["run", "r.yaml", "--device", "cpu", "--json"]
    assert main([*command, "--out", "out"]) == 0
    assert main([*command, "--out", "out", "--resume"]) == 0
    (line,) = (line for line in RunFolder(tmp_path / "out" / "seed-0").metrics() if "loss" in line)
    assert line["z_loss"] > 0
    changed = ["--train.objectives", "[{name: examples.my_objective.ZLoss, weight: 2}]"]
    assert main([*command, "--out", "other", *changed]) == 0
    capsys.readouterr()
    assert main([*command, "--out", "out", "--resume", *changed]) == 2
    assert "was started with train.objectives" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (_with(IdLoss()), "predicted_ids needs model.position_head: pointer or table"),
        (_with(DependencyLoss(weight=2.0)), "dependencies needs model.dependency_head"),
        (_with(TokenLoss(), TokenLoss(weight=2.0)), "tokens is listed twice"),
        (_with(ZLoss(), ZLoss()), "test_objectives.ZLoss is listed twice"),
    ],
)
def test_objectives_that_a_run_cannot_use_are_refused_in_one_line(config, complaint):
    with pytest.raises(BadInput, match=complaint) as refused:
        check(config)
    assert "\n" not in str(refused.value)


def test_a_head_that_no_recipe_mentions_is_checked_too():
    with pytest.raises(BadInput, match="does not say what its answers depend on"):
        check(replace(CONFIG, task=Secretive(), model=replace(TINY, dependency_head=True)))


def test_an_objective_without_losses_says_so():
    with pytest.raises(BadInput, match=r"test_objectives\.Nameless does not say how to compute its losses"):
        terms([Nameless()], build_model(TINY, len(TASK.vocabulary), 0), _batch())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"steps": 3}, {"steps": 3}),
        ({"objective": {}}, {}),
        (
            {
                "objective": {
                    "id_weight": 1.0,
                    "id_loss_on": "answer",
                    "feed_predicted": 0.0,
                    "feed_from": 0.5,
                    "dependency_weight": 1.0,
                }
            },
            {},
        ),
        (
            {"steps": 3, "objective": {"id_weight": 2, "id_loss_on": "all", "feed_predicted": 0.5, "feed_from": 0.1}},
            {
                "steps": 3,
                "objectives": [
                    {"name": "predicted_ids", "weight": 2, "on": "all", "feed_predicted": 0.5, "feed_from": 0.1}
                ],
            },
        ),
        ({"objective": {"dependency_weight": 0.5}}, {"objectives": [{"name": "dependencies", "weight": 0.5}]}),
        (
            {"objective": {"id_weight": 3.0, "dependency_weight": 0.5}},
            {"objectives": [{"name": "predicted_ids", "weight": 3.0}, {"name": "dependencies", "weight": 0.5}]},
        ),
        ({"objectives": ["tokens"]}, {"objectives": ["tokens"]}),
    ],
)
def test_settings_of_earlier_versions_are_upgraded(old, new):
    before = repr(old)
    assert upgrade_objective(old) == new
    assert repr(old) == before
    build(TrainConfig, new)


def test_an_upgraded_setting_that_never_existed_is_refused():
    with pytest.raises(BadInput, match=r"train.objectives\[0\].id_wait: unknown key"):
        build(TrainConfig, upgrade_objective({"objective": {"id_wait": 2}}), "train")


def test_predicted_ids_are_weighted(tmp_path):
    config = replace(CONFIG, ids=Predicted(max_id=60), model=replace(TINY, position_head=PointerConfig()))
    norms = []
    for weight in (1.0, 5.0):
        train = replace(config.train, steps=1, objectives=[IdLoss(weight=weight)])
        folder = execute_in(tmp_path / str(weight), replace(config, train=train))
        (line,) = (line for line in folder.metrics() if "loss" in line)
        norms.append((line["id_loss"], line["grad_norm"]))
    assert norms[0][0] == norms[1][0]
    assert norms[1][1] > 2 * norms[0][1]
