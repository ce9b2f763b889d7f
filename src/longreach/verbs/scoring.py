"""`evaluate`: test trained models at other lengths, or with other settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longreach.config import Lengths, Plain, build, to_plain
from longreach.errors import BadInput, argument
from longreach.evaluation import EvalConfig, Score, TextResult, make_card
from longreach.execution import ExecutionConfig
from longreach.runs import RunFolder, expect_test, find_runs, left_out, run_test, work_of_test
from longreach.training import legal_lengths
from longreach.verbs.progress import Watch, bars
from longreach.verbs.trained import Trained, TrainedRun, load_trained

if TYPE_CHECKING:
    from longreach.reports import RunResult


def evaluate(
    run: TrainedRun,
    *,
    lengths: Lengths | str | int | Sequence[int] | None = None,
    samples: int | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
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
        execution: Fields of `ExecutionConfig` that differ from the run's own.
        device: `auto`, `cpu` or `cuda`; short for `execution={"device": ...}`.
        trust: Let the run folder name classes of the working folder.
        progress: Show progress bars on a terminal.
        settings: Other fields of `EvalConfig`.  A field that is not given keeps its value from the run's own test.

    Raises:
        BadInput: A setting does not exist or does not fit the model.
    """
    changes = given(lengths=lengths, samples=samples, axes=axes) | settings
    asked = _execution(execution, device)
    return _test(load_trained(run, _device(asked), trust), changes, asked, bars(progress))[1]


def evaluate_runs(
    folder: str | Path,
    *,
    lengths: Lengths | str | int | Sequence[int] | None = None,
    samples: int | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    execution: ExecutionConfig | Mapping[str, Any] | None = None,
    device: str | None = None,
    trust: bool = False,
    progress: bool = True,
    **settings: Any,
) -> "list[RunResult]":
    """Test every run below a folder; return scores, losses on text, and information cards.

    The arguments are those of `evaluate`.
    """
    changes = given(lengths=lengths, samples=samples, axes=axes) | settings
    asked = _execution(execution, device)
    return [score_folder(found, changes, asked, trust, bars(progress)) for found in runs_below(folder)]


def _execution(settings: ExecutionConfig | Mapping[str, Any] | None, device: str | None) -> Plain:
    """Return the execution settings that were given, with the device among them."""
    plain = to_plain(settings) if isinstance(settings, ExecutionConfig) else dict(settings or {})
    return plain | given(device=device)


def _device(execution: Plain) -> str:
    """Return the device that was given: the device of the training may be another machine's."""
    return build(ExecutionConfig, execution, "execution").device


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
    folder: RunFolder, changes: Plain, execution: Plain, trust: bool, watch: Watch, where: str = ""
) -> "RunResult":
    """Test the model of a run folder; `where` is the recipe section that errors name in front of a setting."""
    from longreach.reports import run_result  # matplotlib takes a while to load

    trained = load_trained(folder, _device(execution), trust)
    asked, scores, text = _test(trained, changes, execution, watch, where)
    config, info = trained.config, folder.info()
    lengths = legal_lengths(config.task, config.train.lengths)
    card = make_card(config.task, config.ids, lengths, asked, config.train.prime, task_check=info.task_check)
    return run_result(folder, info, scores, card, () if text is None else text.losses)


def _test(
    trained: Trained, changes: Plain, execution: Plain, watch: Watch, where: str = ""
) -> tuple[EvalConfig, list[Score], TextResult | None]:
    config, model, device, folder = trained
    asked = _asked(config.evaluate, changes, where)
    computed = build(ExecutionConfig, {**to_plain(config.execution), **execution}, "execution")
    if asked.prompt_ids_only and config.ids.supplier(config.task) != "model":
        raise BadInput(
            f"{argument('prompt_ids_only')} concerns predicted IDs, which ids {config.ids.name} does not use"
        )
    tested = config.held_out()
    skipped = left_out(tested, asked)
    with watch() as observer:
        if folder is not None and not folder.finished:
            observer.say(f"{folder.path} is not finished: its newest checkpoint is tested")
        for line in skipped:
            observer.say(f"left out: {line}")
        title = "test" if folder is None else f"test {folder.path}"
        report = observer.phase(title, work_of_test(tested, asked))
        expect_test(model, config, asked, computed, device, observer)
        seed = 0 if folder is None else folder.info().seed
        return asked, *run_test(model, tested, config.ids, asked, seed, device, computed, report)


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
