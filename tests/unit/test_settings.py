"""Every setting is converted and checked when an object is made, in Python as in a recipe."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import jaxtyping
import pytest
import torch

import longreach.api as lr
from longreach.bench.protocols import EveryTarget, Protocol
from longreach.config import LARGEST_ID, Bounds, Settings, build, field_help
from longreach.config.registry import entries, kinds
from longreach.config.settings import _hints
from longreach.decoding import SamplingConfig
from longreach.errors import BadInput, RunFailed
from longreach.evaluation.controls import SpoiltIds
from longreach.probe import ProbeConfig
from longreach.runs import check, execute_together, gather_info, seeds_of
from longreach.sweeps.resources import Resources
from longreach.tasks.planted_laws import FixedGaps, TableLabel, WeightedTokens
from longreach.tasks.relabelling import increasing, offset, skips
from longreach.text import PrepareConfig
from longreach.training import Step, list_checkpoints

PLAIN = (
    lr.RunConfig, lr.TrainConfig, lr.OptimizerConfig, lr.PrimeConfig, lr.EvalConfig,
    lr.ExecutionConfig, SamplingConfig, ProbeConfig, PrepareConfig, Resources, Protocol, EveryTarget,
)  # fmt: skip
NEEDED: dict[type, dict[str, Any]] = {
    FixedGaps: {"gaps": [1]},
    WeightedTokens: {"probabilities": [0.5, 0.5]},
    TableLabel: {"vocab_size": 2, "classes": [0, 1]},
    lr.PrimeConfig: {"lengths": 8},
    lr.RunConfig: {"task": "copy"},
    lr.Pose: {"max_id": 9},
}
MAY_BE_NEGATIVE = {"shift", "start", "offset", "scale"}
"""A shift of IDs, the growth of scores, and the factor on sinusoids; positions of an automaton are not."""
CONFIG = lr.RunConfig(
    task=lr.Copy(),
    model=lr.TransformerConfig(layers=1, width=16, heads=2),
    train=lr.TrainConfig(lengths=lr.Span(1, 6), steps=2, batch_size=4),
    evaluate=lr.EvalConfig(lengths=lr.Lengths((3,)), samples=2, free_samples=1),
)


@pytest.fixture(autouse=True)
def _as_a_user_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the types that only tests check: they would refuse everything before the settings do."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def classes() -> Iterator[type]:
    registered = {cls: None for kind in kinds() for cls in entries(kind).values()}
    yield from (cls for cls in registered if issubclass(cls, Settings))
    yield from PLAIN


def numeric_fields(cls: type) -> list[str]:
    return [name for name, hint in _hints(cls).items() if _has_number(hint)]


def _try_to_make(cls: type, settings: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "", cls(**settings)
    except ValueError as error:
        return str(error), None


def _has_number(hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return False
    return hint in (int, float) or any(_has_number(option) for option in get_args(hint))


@pytest.mark.parametrize("cls", list(dict.fromkeys(classes())), ids=lambda cls: cls.__name__)
def test_odd_values_are_taken_or_refused_by_name(cls: type) -> None:
    for name in numeric_fields(cls):
        for value in (math.nan, math.inf, -math.inf, -1, 2**63, 10**30, 10**5000, True, "x", None, [], {}, [math.nan]):
            refusal, made = _try_to_make(cls, {**NEEDED.get(cls, {}), name: value})
            if made is None:
                assert name in refusal.replace("-", "_")
                assert "\n" not in refusal
                assert len(refusal) < 300
                continue
            kept = getattr(made, name)
            assert value is None or value in ([], {}) or isinstance(value, int)
            if type(kept) is int:
                assert value != -1 or name in MAY_BE_NEGATIVE
                assert abs(kept) < 2**63


def test_every_kind_and_configuration_checks_its_settings() -> None:
    for kind in kinds():
        for name, cls in entries(kind).items():
            assert issubclass(cls, Settings), name
    for cls in PLAIN:
        assert issubclass(cls, Settings)


def test_python_may_write_what_a_recipe_may() -> None:
    assert lr.VariableAssignment(hops=3) == lr.VariableAssignment(hops=lr.Span(3, 3))
    assert lr.TrainConfig(lengths="1..6").lengths == lr.TrainConfig(lengths=(1, 6)).lengths == lr.Span(1, 6)
    assert lr.EvalConfig(lengths=(1, 6)).lengths == lr.Lengths((1, 6))
    assert lr.EvalConfig(lengths="1:3").lengths == lr.Lengths((1, 2, 3))
    config = lr.RunConfig(task="copy", model={"layers": 1}, train={"optimizer": {"lr": 1}})
    assert config.task == lr.Copy()
    assert config.model == lr.TransformerConfig(layers=1)
    assert config.train.optimizer == lr.OptimizerConfig(lr=1.0)
    assert type(lr.OptimizerConfig(lr=1).lr) is float
    assert replace(CONFIG.train, lengths="2..3").lengths == lr.Span(2, 3)
    assert lr.Mixture(of=["copy", {"name": "reverse"}], weights=[1, 2]).weights == (1.0, 2.0)


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    config = lr.OptimizerConfig(lr=numpy.float32(0.5), warmup=numpy.int64(3))
    assert (config.lr, config.warmup) == (0.5, 3)
    assert (type(config.lr), type(config.warmup)) == (float, int)


@pytest.mark.parametrize(
    ("cls", "settings", "line"),
    [
        (lr.TrainConfig, {"lengths": (1, 6, 8)}, r"^TrainConfig.lengths: expected .* such as 1..8, got \(1, 6, 8\)$"),
        (lr.TrainConfig, {"lengths": (1, 6.5)}, r"^TrainConfig.lengths: a range has whole numbers .*, got 6.5$"),
        (lr.OptimizerConfig, {"lr": "x"}, "^OptimizerConfig.lr: expected float, got 'x'$"),
        (lr.OptimizerConfig, {"lr": math.inf}, "^OptimizerConfig.lr must be a finite number, got inf$"),
        (lr.RunConfig, {"task": "copi"}, "^RunConfig.task: unknown task 'copi'; did you mean copy"),
        (lr.RunConfig, {"task": lr.RopeConfig()}, "^RunConfig.task: expected a name"),
        (lr.VariableAssignment, {"hops": "many"}, "^VariableAssignment.hops: expected a whole number or a range"),
        (lr.Copy, {"symbols": 10**9}, "^Copy.symbols must be at most 1000000, got 1000000000$"),
        (lr.EvalConfig, {"seed": -1}, "^EvalConfig.seed must not be negative, got -1$"),
        (lr.TransformerConfig, {"width": 20, "heads": 3}, "width=20 does not split into 3 heads"),
        (lr.TransformerConfig, {"encoding": 3}, "^TransformerConfig.encoding: expected a name"),
        (lr.Span, {"low": 1.5, "high": 3}, "whole numbers"),
        (lr.Lengths, {"values": (1, 2.5)}, "whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(cls: type, settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        cls(**settings)


def test_a_recipe_says_where() -> None:
    with pytest.raises(BadInput, match=r"^train.optimizer.lr must be a finite number, got nan$"):
        build(lr.RunConfig, {"task": "copy", "train": {"optimizer": {"lr": math.nan}}})
    with pytest.raises(BadInput, match=r"^evaluate.lengths: lengths are at most 100000 numbers up to 2147483647"):
        build(lr.RunConfig, {"task": "copy", "evaluate": {"lengths": "1:10000000000"}})


@dataclass(frozen=True, kw_only=True)
class Double(lr.Copy):
    """A task of a user, whose `__post_init__` calls no other."""

    factor: Annotated[float, Bounds(1, 2)] = 1.0
    signs: list[Annotated[int, Bounds(-1, 1)]] | None = None

    def __post_init__(self) -> None:
        if self.factor == 2:
            raise ValueError("factor is 2")


class Halved:
    def __post_init__(self) -> None:
        assert isinstance(self.factor, float)  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Mixed(Halved, Double):
    """A task of a user with a mixin that knows nothing of settings."""


@pytest.mark.parametrize("cls", [Double, Mixed])
def test_classes_of_a_user_are_checked_too(cls: type[Double]) -> None:
    assert cls(factor=1, signs=(-1, 1)).signs == [-1, 1]
    with pytest.raises(BadInput, match=rf"^{cls.__name__}.factor must be at most 2, got 3.0$"):
        cls(factor=3)
    with pytest.raises(BadInput, match=rf"^{cls.__name__}.signs\[1\] must be at least -1, got -2$"):
        cls(signs=[0, -2])
    with pytest.raises(BadInput, match=rf"^{cls.__name__}.symbols: expected int, got 'x'$"):
        cls(symbols="x")  # type: ignore[arg-type]


def test_fields_are_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("longreach.config.settings._convert_fields", lambda settings: calls.append(type(settings)))
    lr.LlamaConfig()
    assert calls.count(lr.LlamaConfig) == 1


@pytest.mark.parametrize("relabel", [increasing, offset, skips])
def test_relabelling_stays_in_range_up_to_the_largest_id(relabel: Any) -> None:
    draws = lr.stream(0, "test", torch.arange(2000))
    ids = relabel(torch.arange(4).expand(2000, 4), LARGEST_ID, draws)
    assert int(ids[:, 1:].min()) >= 1
    assert int(ids.max()) <= LARGEST_ID
    # every quarter of the range is met: nothing has wrapped around
    assert len((ids[:, 1:] * 4 // (LARGEST_ID + 1)).unique()) == 4
    assert bool((ids[:, 1:].diff(dim=1) > 0).all())


@pytest.mark.parametrize("ids", ["random_start", "pose", "uniform_pose", "coupled"])
def test_a_run_with_the_largest_id_trains(ids: str, tmp_path: Path) -> None:
    config = replace(CONFIG, ids={"name": ids, "max_id": LARGEST_ID})
    batch = lr.stream(0, "test", torch.arange(64))
    sample = config.task.sample(torch.full((64,), 6), batch, 6)
    shown = config.ids.training_ids(config.task, sample, batch)
    assert int(shown.min()) >= 0
    assert LARGEST_ID // 2 < int(shown.max()) <= LARGEST_ID
    assert lr.run(config, tmp_path / "run", device="cpu")
    with pytest.raises(BadInput, match=r"max_id must be at most 1073741824, got 1073741825$"):
        replace(CONFIG, ids={"name": ids, "max_id": LARGEST_ID + 1})


def run_stack(configs: list[lr.RunConfig], out: Path) -> None:
    folders = [lr.RunFolder(out / str(number)) for number in range(len(configs))]
    infos = [gather_info("script", "", "", number, "cpu") for number in range(len(configs))]
    execute_together(configs, folders, infos, "cpu")


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    hot = replace(CONFIG, train=replace(CONFIG.train, steps=1, optimizer={"lr": 1e300, "warmup": 0}))
    with pytest.raises(RunFailed, match="the weights after step 1 are not finite; no checkpoint had been saved"):
        run_stack([hot], tmp_path)
    folder = lr.RunFolder(tmp_path / "0")
    assert not folder.finished
    assert not list_checkpoints(folder.checkpoints)


def test_the_last_good_checkpoint_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil_at_the_end(config: lr.OptimizerConfig, step: int, steps: int) -> float:
        return 1e300 if step == steps - 1 else 1e-3

    monkeypatch.setattr("longreach.training.step.learning_rate", spoil_at_the_end)
    config = replace(CONFIG, train=replace(CONFIG.train, steps=3), execution=lr.ExecutionConfig(save_every=2))
    with pytest.raises(RunFailed, match=r"after step 3 are not finite; the last good state is step 2"):
        run_stack([config], tmp_path)
    folder = lr.RunFolder(tmp_path / "0")
    assert [checkpoint.step for checkpoint in list_checkpoints(folder.checkpoints)] == [2]
    assert not folder.finished


def test_others_of_a_stack_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_step = Step.__call__

    def spoil_the_second(self: Step, step: int) -> torch.Tensor:
        losses = take_step(self, step)
        next(self.model.parameters()).data[1] = math.inf
        return losses

    monkeypatch.setattr(Step, "__call__", spoil_the_second)
    config = replace(CONFIG, train=replace(CONFIG.train, steps=1))
    with pytest.raises(RunFailed, match=r"/1: the weights after step 1 are not finite"):
        run_stack([config, config], tmp_path)
    assert lr.RunFolder(tmp_path / "0").finished
    assert not lr.RunFolder(tmp_path / "1").finished
    assert not list_checkpoints(lr.RunFolder(tmp_path / "1").checkpoints)


def test_an_encoding_for_tests_is_tried_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BadInput("no such frequencies")

    monkeypatch.setattr("longreach.positions.encodings.rope_scaling.scaled_frequencies", refuse)
    config = replace(CONFIG, evaluate=replace(CONFIG.evaluate, encoding="scaled_rope"))
    with pytest.raises(BadInput, match="no such frequencies"):
        check(config)


def test_seeds_have_bounds(tmp_path: Path) -> None:
    assert seeds_of("r", {"first_seed": 2**63 - 1}) == (2**63 - 1,)
    with pytest.raises(BadInput, match=r"below 2\*\*63"):
        seeds_of("r", {"first_seed": 2**63})
    with pytest.raises(BadInput, match="at most 100000"):
        seeds_of("r", {"seeds": 10**12})
    with pytest.raises(BadInput, match=r"below 2\*\*63, got -1$"):
        lr.run(CONFIG, tmp_path, seed=-1, device="cpu")


def test_controls_keep_their_policy() -> None:
    policy = lr.Coupled(max_id=9)
    assert SpoiltIds(of=policy, control="shuffled").of is policy


def test_the_sentence_below_a_field_is_its_help() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Inner(Settings):
        first: int = 1
        """The first."""
        second: int = 2

    @dataclass(frozen=True, kw_only=True)
    class Outer(Inner):
        second: int = 3
        """The second."""

    texts = {field.name: field.help for field in field_help(Outer)}
    assert texts == {"first": "The first.", "second": "The second."}
    assert [field.help for field in field_help(Inner)] == ["The first.", ""]
    nowhere = type("Nowhere", (Inner,), {"__module__": "no_such_module"})
    assert [field.help for field in field_help(nowhere)] == ["The first.", ""]
