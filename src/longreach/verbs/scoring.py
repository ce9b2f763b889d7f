"""`evaluate`: test trained models at other lengths, or with other settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longreach.config import Lengths, Plain, build, to_plain
from longreach.errors import BadInput, argument
from longreach.evaluation import EvalConfig, Measures, Score, TextResult, make_card
from longreach.evaluation.measures import MeasureName, read_names
from longreach.execution import ExecutionConfig
from longreach.runs import (
    RunFolder,
    expect_test,
    find_runs,
    left_out,
    measure_run,
    plan_measures,
    run_test,
    work_of_test,
)
from longreach.training import legal_lengths
from longreach.verbs.progress import Watch, bars
from longreach.verbs.trained import Trained, TrainedRun, load_trained

if TYPE_CHECKING:
    from longreach.reports import RunResult


class _Tested(NamedTuple):
    asked: EvalConfig
    scores: list[Score]
    text: TextResult | None
    measures: Measures | None


def evaluate(
    run: TrainedRun,
    *,
    lengths: Lengths | str | int | Sequence[int] | None = None,
    samples: int | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    measure: str | Sequence[str] | None = None,
    execution: ExecutionConfig | Mapping[str, Any] | None = None,
    device: str | None = None,
    trust: bool = False,
    progress: bool = True,
    **settings: Any,
) -> list[Score]:
    """Test a trained model and return its scores.

    Args:
        run: A run folder, or the pair that `load_model` returns.
        lengths: Test lengths such as `"20:500:20"` or `[10, 20, 40]`.
        samples: Samples of each length.
        axes: Task settings to vary, such as `{"k": [4, 6]}`.
        measure: Measures to write into the run folder too: `"mass"`, `"margin"`, `"token_margin"` or a list of them.
            `RunFolder.measures` reads them.
        execution: Fields of `ExecutionConfig` that differ from the run's own.
        device: `auto`, `cpu` or `cuda`; short for `execution={"device": ...}`.
        trust: Let the run folder name classes of the working folder.
        progress: Show progress bars on a terminal.
        settings: Other fields of `EvalConfig`.  A field that is not given keeps its value from the run's own test.

    Raises:
        BadInput: A setting does not exist or does not fit the model, or no measure applies to it.
    """
    changes = given(lengths=lengths, samples=samples, axes=axes) | settings
    asked = _execution(execution, device)
    names = _names(measure)
    trained = load_trained(run, _device(asked), trust)
    if names and trained.folder is None:
        raise BadInput(f"{argument('measure')} writes into a run folder, which a model from memory does not have")
    return _test(trained, changes, asked, bars(progress), measure=names).scores


def evaluate_runs(
    folder: str | Path,
    *,
    lengths: Lengths | str | int | Sequence[int] | None = None,
    samples: int | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    measure: str | Sequence[str] | None = None,
    execution: ExecutionConfig | Mapping[str, Any] | None = None,
    device: str | None = None,
    trust: bool = False,
    progress: bool = True,
    **settings: Any,
) -> "list[RunResult]":
    """Test every run below a folder; return scores, losses on text, and information cards.

    The arguments are those of `evaluate`.  Of several runs, those to which no measure applies are only tested.
    """
    changes = given(lengths=lengths, samples=samples, axes=axes) | settings
    asked = _execution(execution, device)
    folders, names = runs_below(folder), _names(measure)
    several = len(folders) > 1
    return [
        score_folder(found, changes, asked, trust, bars(progress), measure=names, several=several) for found in folders
    ]


def _execution(settings: ExecutionConfig | Mapping[str, Any] | None, device: str | None) -> Plain:
    """Return the execution settings that were given, with the device among them."""
    plain = to_plain(settings) if isinstance(settings, ExecutionConfig) else dict(settings or {})
    return plain | given(device=device)


def _device(execution: Plain) -> str:
    """Return the device that was given: the device of the training may be another machine's."""
    return build(ExecutionConfig, execution, "execution").device


def _names(measure: str | Sequence[str] | None) -> tuple[MeasureName, ...]:
    return () if measure is None else read_names(measure)


def given(**settings: Any) -> Plain:
    """Return the settings that are not None."""
    return {name: value for name, value in settings.items() if value is not None}


def runs_below(folder: str | Path) -> list[RunFolder]:
    """Return the runs at or below a folder; raise BadInput if there are none."""
    found = list(find_runs(Path(folder)))
    if not found:
        raise BadInput(f"{folder} holds no run")
    return found


def score_folder(
    folder: RunFolder,
    changes: Plain,
    execution: Plain,
    trust: bool,
    watch: Watch,
    where: str = "",
    measure: Sequence[MeasureName] = (),
    several: bool = False,
) -> "RunResult":
    """Test the model of a run folder; `where` is the recipe section that errors name in front of a setting.

    The result has the measures of this test.  If no measure applies, raise BadInput; of `several` runs, only say so.
    """
    from longreach.reports import ModelMeasures, run_result  # matplotlib takes a while to load

    trained = load_trained(folder, _device(execution), trust)
    asked, scores, text, measures = _test(trained, changes, execution, watch, where, measure, several)
    config, info = trained.config, folder.info()
    lengths = legal_lengths(config.task, config.train.lengths)
    card = make_card(config.task, config.ids, lengths, asked, config.train.prime, task_check=info.task_check)
    result = run_result(folder, info, scores, card, () if text is None else text.losses)
    return result if measures is None else replace(result, measured=ModelMeasures.of(measures, card.test_ids))


def _test(
    trained: Trained,
    changes: Plain,
    execution: Plain,
    watch: Watch,
    where: str = "",
    measure: Sequence[MeasureName] = (),
    several: bool = False,
) -> _Tested:
    config, model, device, folder = trained
    asked = _asked(config.evaluate, changes, where)
    computed = build(ExecutionConfig, {**to_plain(config.execution), **execution}, "execution")
    if asked.prompt_ids_only and config.ids.supplier(config.task) != "model":
        raise BadInput(
            f"{argument('prompt_ids_only')} concerns predicted IDs, which ids {config.ids.name} does not use"
        )
    tested = config.held_out()
    skipped = left_out(tested, asked)
    budget = computed.batch_tokens
    with watch() as observer:
        plan = plan_measures(model, config, asked, measure, device, budget, observer) if measure else None
        if plan is not None and not plan.names and not several:
            raise BadInput(*plan.notes)
        if plan is not None and folder is not None:
            folder.measures()  # a damaged file is refused before the work
        if folder is not None and not folder.finished:
            observer.say(f"{folder.path} is not finished: its newest checkpoint is tested")
        for line in skipped:
            observer.say(f"left out: {line}")
        for line in () if plan is None else plan.notes:
            observer.say(line if folder is None else f"{folder.path}: {line}")
        title = "test" if folder is None else f"test {folder.path}"
        report = observer.phase(title, work_of_test(tested, asked))
        expect_test(model, config, asked, computed, device, observer)
        seed = 0 if folder is None else folder.info().seed
        scores, text = run_test(model, tested, config.ids, asked, seed, device, computed, report)
        measures = None
        if plan is not None and plan.names and folder is not None:
            measures = measure_run(model, config, asked, plan, device, budget, folder, observer)
        return _Tested(asked, scores, text, measures)


def _asked(stored: EvalConfig, changes: Plain, where: str) -> EvalConfig:
    """Return the run's own test with changes."""
    changes = dict(changes)
    if changes.get("relabel_ids") is True:
        changes.setdefault("free_samples", 0)
    if isinstance(changes.get("samples"), int) and "free_samples" not in changes:
        changes["free_samples"] = min(changes["samples"], stored.free_samples)
    try:
        return build(EvalConfig, {**to_plain(stored), **changes}, where)
    except BadInput as error:
        raise BadInput(*(line if where else line.removeprefix("evaluate.") for line in error.lines)) from error
