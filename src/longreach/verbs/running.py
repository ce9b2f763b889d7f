"""`run`: train and test one model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longreach.config import build
from longreach.errors import BadInput
from longreach.evaluation import EvalConfig, Score
from longreach.execution import ExecutionConfig
from longreach.model import ModelConfig
from longreach.positions.ids import IdPolicy
from longreach.runs import RunConfig, RunFolder, choose_device, execute, gather_info, on_preset, with_test_lengths
from longreach.tasks import Task
from longreach.training import TrainConfig, ask_for_repeatable_products
from longreach.verbs.checking import check_before_run
from longreach.verbs.progress import bars


def run(
    config: RunConfig | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    device: str | None = None,
    resume: bool = False,
    track: Sequence[str] = (),
    *,
    task: Task | str | Mapping[str, Any] | None = None,
    ids: IdPolicy | str | Mapping[str, Any] | None = None,
    model: ModelConfig | str | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    evaluate: EvalConfig | Mapping[str, Any] | None = None,
    execution: ExecutionConfig | Mapping[str, Any] | None = None,
    preset: str | None = None,
    progress: bool = True,
    check: bool = True,
) -> list[Score]:
    """Train and test one model in a folder and return its scores.

    `run(config, "runs/a")` and `run(task="copy", train={"lengths": (1, 6)}, out="runs/a")` are the two ways to call
    it.  A section accepts what a recipe accepts: an object, a mapping of settings, or the name of a part.

    Args:
        config: The whole configuration, instead of its sections.
        out: Folder of the run.
        seed: Seed of the weights and of the training samples.
        device: `auto`, `cpu`, `cuda` or `cuda:1`; replaces `execution.device`.
        resume: Continue a run that was stopped.
        track: Trackers besides TensorBoard: `wandb`, `trackio`.
        task: What is learnt.
        ids: Position IDs of the tokens.
        model: The model.
        train: Training settings.
        evaluate: Settings of the test.
        execution: Settings of the machine and the engine.
        preset: Position IDs, model and training for many tasks: `ppc`.  The sections given here go on top.
        progress: Show progress bars on a terminal.
        check: Check a task from outside longreach before training, as `longreach.check` does.

    Raises:
        BadInput: A setting does not exist or does not fit the others, the task fails its check, or the folder holds
            something already.
        RunFailed: Training or testing could not be finished.
    """
    sections = {"task": task, "ids": ids, "model": model, "train": train, "evaluate": evaluate, "execution": execution}
    settings = {name: value for name, value in sections.items() if value is not None}
    if out is None:
        raise BadInput("out is missing: the folder of the run")
    if config is None:
        if preset is not None:
            settings = with_test_lengths(preset, on_preset(preset, settings))
        config = build(RunConfig, settings)
    elif preset is not None:
        raise BadInput("config is the whole configuration: leave out preset, or give no config")
    elif settings:
        raise BadInput(f"config is the whole configuration: leave out {', '.join(settings)}, or give no config")
    if device is not None:
        config = replace(config, execution=replace(config.execution, device=device))
    if config.execution.deterministic:
        ask_for_repeatable_products(config.execution.device)  # before the device is looked at
    chosen = choose_device(config.execution.device)
    folder = RunFolder(Path(out))
    with bars(progress)() as observer:
        info = gather_info("script", "", "", seed, chosen)
        if not (resume and folder.begun):
            skip = not check
            info = replace(info, task_check=check_before_run(config.task, config.train.lengths, observer.say, skip))
        execute(config, folder, info, chosen, resume, observer, track)
    return folder.scores()
