"""One run from start to end: check, train, test, save."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from longreach.config import to_plain
from longreach.errors import BadInput, RunFailed
from longreach.evaluate import cells, evaluate, judge, make_card, total_samples
from longreach.model import Model, member_state, stack_models
from longreach.ranks import ALONE, Ranks, processes
from longreach.runs.check import check
from longreach.runs.failures import naming_lack_of_memory
from longreach.runs.folder import RunFolder, RunInfo
from longreach.runs.follow import FINISHED, follow
from longreach.runs.journal import Journal
from longreach.runs.parts import common_training, new_model, stacked_data
from longreach.runs.recipe import RunConfig
from longreach.runs.tracking import Trackers, check_trackers, score_values
from longreach.seeding import stream
from longreach.train import (
    Checkpoint,
    Hooks,
    Parallel,
    Shared,
    build_optimizer,
    deterministic_kernels,
    legal_lengths,
    list_checkpoints,
    load_checkpoint,
    newest_intact,
    prune,
    save_checkpoint,
    stack_state,
    take_member,
    train,
)

_VALIDATION_SAMPLES = 256
_TRAINING_WITH_LESS = "a greater train.accumulate, train.recompute and a smaller --stack need less"
_TESTING_WITH_LESS = "a smaller evaluate.batch_tokens needs less"


@dataclass(frozen=True)
class Observer:
    """How a run tells what it is doing.  The defaults tell nobody."""

    phase: Callable[[str, int], Callable[[int, str], None]] = lambda title, total: lambda done, note: None
    """Begin a phase of so many units; the answer is called with the units done and a short note."""
    say: Callable[[str], None] = lambda line: None
    should_stop: Callable[[], bool] = lambda: False
    saved: Callable[[RunFolder], None] = lambda folder: None
    """Called when a run has saved a checkpoint or its scores."""


def choose_device(device: str) -> str:
    """`auto` takes a GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.empty(0, device=device).device.type
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device {device!r} cannot be used: {str(error).splitlines()[0]}") from error
    if kind not in ("cpu", "cuda"):
        raise BadInput(f"device {device!r} cannot be used: longreach runs on cpu and cuda")
    return device


def execute(
    config: RunConfig,
    folder: RunFolder,
    info: RunInfo,
    device: str,
    resume: bool = False,
    observer: Observer | None = None,
    track: Sequence[str] = (),
) -> bool:
    """Train and test one seed in its folder; False if interrupted, with everything saved for a resume."""
    return execute_together([config], [folder], [info], device, resume, observer, track)


def execute_together(
    configs: Sequence[RunConfig],
    folders: Sequence[RunFolder],
    infos: Sequence[RunInfo],
    device: str,
    resume: bool = False,
    observer: Observer | None = None,
    track: Sequence[str] = (),
    ranks: Ranks = ALONE,
    parallel: Parallel = "ddp",
) -> bool:
    """Train several runs as one stack and test them one by one, each in its folder; False if interrupted.

    What they must have in common `stack_key` says.  `track` names where they can be watched besides TensorBoard:
    wandb, trackio.  Several `ranks` train one run; only the first of them writes, measures and tests.
    """
    observer = observer or Observer()
    check_trackers(track, together=len(folders))
    if ranks.count > 1 and len(folders) > 1:
        raise BadInput(f"{ranks.count} processes train one seed at a time: leave out --stack")
    if ranks.count != processes():
        raise BadInput(f"started as one of {processes()} processes, which `longreach run` alone can make one run of")
    if not ranks.first:
        with (
            deterministic_kernels(configs[0].train.deterministic, device),
            naming_lack_of_memory(_TRAINING_WITH_LESS, partial(_last_good, folders[0])),
        ):
            return follow(configs[0], folders[0], infos[0].seed, device, ranks, parallel, observer.should_stop)
    todo = []
    for config, folder, info in zip(configs, folders, infos, strict=True):
        journal = Journal(folder.path, observer.say)
        if resume and (folder.path / "config.yaml").exists():
            refuse_other_config(folder, config)
            if folder.finished:
                observer.say(f"{folder.path} is finished already")
                continue
            folder.note_resume(info)
        else:
            check(config)
            folder.create(config, info)
        journal.note("started", seed=info.seed, device=info.device, commit=info.commit, stack=info.stack)
        model = new_model(config, info.seed, device)
        todo.append(_Run(config, folder, info.seed, model, journal, Trackers(track, config, folder, info)))
    if not todo:
        ranks.hear(FINISHED)
        return True
    failures: dict[Path, str] = {}
    with ExitStack() as closing:
        for run in todo:
            closing.enter_context(run.journal)
            closing.enter_context(run.tracker)
        closing.enter_context(deterministic_kernels(configs[0].train.deterministic, device))
        with naming_lack_of_memory(_TRAINING_WITH_LESS, partial(_last_good, todo[0].folder)):
            done = _train(todo, device, observer, failures, ranks, parallel)
        if not done:
            return _interrupted(todo)
        for run in todo:
            if run.folder.path in failures:
                continue
            with naming_lack_of_memory(_TESTING_WITH_LESS, partial(_last_good, run.folder)):
                done = _test(run, device, observer)
            ranks.hear(done)
            if not done:
                return _interrupted([run])
    if failures:
        raise RunFailed("; ".join(failures.values()))
    return True


class _Run(NamedTuple):
    """One seed of one configuration."""

    config: RunConfig
    folder: RunFolder
    seed: int
    model: Model
    journal: Journal
    tracker: Trackers


def _interrupted(runs: list[_Run]) -> bool:
    for run in runs:
        run.journal.note("interrupted")
    return False


def _train(
    runs: list[_Run],
    device: str,
    observer: Observer,
    failures: dict[Path, str],
    ranks: Ranks,
    parallel: Parallel,
) -> bool:
    settings, shares = common_training([run.config for run in runs])
    starts = _starts(runs, settings.save_every)
    steps = [_step(start) for start in starts]
    if len(set(steps)) > 1:
        runs[0].journal.warn("the seeds stopped at different steps: they go on one after the other")
        return all(_train([run], device, observer, failures, ranks, parallel) for run in runs)
    optimizers: list[torch.optim.Optimizer] = [build_optimizer(run.config.train.optimizer, run.model) for run in runs]
    step = steps[0]
    for run, start, own in zip(runs, starts, optimizers, strict=True):
        if start is not None:
            load_checkpoint(start, run.model, own)
            run.journal.tell("resumed", f"resuming {run.folder.path} at step {step}", step=step)
        run.folder.forget_after(step)
        run.tracker.forget_after(step)
    ranks.hear(step)
    if step >= settings.steps:
        return True
    model, optimizer, shared = runs[0].model, optimizers[0], None
    if ranks.count > 1:
        shared = Shared(parallel, ranks, device, settings, model, optimizer)
        model, optimizer = shared.model, shared.optimizer
    if len(runs) > 1:
        model = stack_models([run.model for run in runs])
        optimizer = build_optimizer(settings.optimizer, model)
        if step:
            stack_state(optimizer, optimizers)
    model.recompute = settings.recompute
    # only training runs compiled: a test has a new shape for every length, and each would be compiled anew
    compiled = model.compiled() if settings.compile else None
    data = stacked_data([(run.config, run.seed) for run in runs], device)
    report = observer.phase(f"train {_labels(runs)}", settings.steps)
    report(step, "")

    def refresh(number: int) -> None:
        """Bring one of the models of a stack up to date, or the one that ranks have parts of."""
        if shared is not None:
            shared.refresh_model(runs[number].model)
        if len(runs) > 1:
            runs[number].model.load_state_dict(member_state(model, number))

    def hooks(number: int) -> Hooks:
        config, folder, seed, member, journal, tracker = runs[number]

        def log(done: int, values: dict[str, float]) -> None:
            folder.log(done, values)
            tracker.log(done, values)

        def validate(done: int) -> float:
            refresh(number)
            score = _validate(config, member.eval(), seed, device)
            log(done, {"in_distribution_em": score})
            ranks.wait()
            return score

        def save(done: int, score: float | None) -> None:
            refresh(number)
            if shared is not None:
                shared.refresh_state(optimizers[number])
            if len(runs) > 1:
                take_member(optimizer, number, optimizers[number])
            save_checkpoint(folder.checkpoints, done, member, optimizers[number], score)
            if number == max(other for other, run in enumerate(runs) if run.folder.path not in failures):
                # not before all are saved: a stack that is killed in between goes back to a step that all have
                for run in runs:
                    prune(run.folder.checkpoints, settings.keep_last)
            journal.note("checkpoint", step=done, score=score)
            observer.saved(folder)
            ranks.wait()

        def give_up(reason: str) -> None:
            failures[folder.path] = failure = (
                f"{folder.path}: {reason}; {_last_good(folder)}; try a lower train.optimizer.lr"
            )
            journal.note("gave up", "error", message=failure)
            tracker.finish(done=False)
            if len(runs) == 1:
                raise RunFailed(failure)
            observer.say(f"{failure}; the others go on")

        return Hooks(
            log=log,
            validate=validate,
            save=save,
            progress=lambda done, loss: report(done, f"loss {loss:.3g}"),
            should_stop=lambda: ranks.any(observer.should_stop()),
            give_up=give_up,
        )

    every = [hooks(number) for number in range(len(runs))]
    loss = None if shared is None else shared.loss
    return train(model, optimizer, data, settings, every, step, compiled, shares, ranks, loss)


def _starts(runs: list[_Run], save_every: int) -> list[Checkpoint | None]:
    """What each seed goes on from: where a stack was killed while it saved, the step before, which all of them have."""
    newest = [newest_intact(run.folder.checkpoints, run.journal.warn) for run in runs]
    steps = [_step(start) for start in newest]
    if max(steps) - min(steps) > save_every:
        return newest
    return [
        start if _step(start) == min(steps) else newest_intact(run.folder.checkpoints, run.journal.warn, min(steps))
        for run, start in zip(runs, newest, strict=True)
    ]


def _step(start: Checkpoint | None) -> int:
    return 0 if start is None else start.step


class _StopTesting(Exception):
    """Asked to stop between two batches of a test."""


def _test(run: _Run, device: str, observer: Observer) -> bool:
    config, folder, seed, model, journal, tracker = run
    journal.note("testing")
    load_checkpoint(_selected(folder, config), model)
    report = observer.phase(f"test {_label(folder)}", total_samples(config.task, config.evaluate))
    for line in cells(config.task, config.evaluate)[1]:
        journal.tell("left out", f"left out: {line}")

    def progress(done: int, note: str) -> None:
        report(done, note)
        if observer.should_stop():
            raise _StopTesting

    try:
        scores = evaluate(model, config.task, config.ids, config.evaluate, seed, device, progress)
    except _StopTesting:
        return False
    lengths = legal_lengths(config.task, config.train.lengths)
    folder.save_results(scores, make_card(config.task, config.ids, lengths, config.evaluate, config.train.prime))
    tracker.log(config.train.steps, score_values(scores))
    tracker.finish(done=True)
    journal.note("finished")
    observer.saved(folder)
    return True


def load_model(folder: RunFolder, device: str = "cpu") -> tuple[RunConfig, Model]:
    """A trained model and the configuration it was trained under."""
    config = folder.config()
    model = new_model(config, seed=0, device=device)
    load_checkpoint(_selected(folder, config), model)
    return config, model.eval()


def _selected(folder: RunFolder, config: RunConfig) -> Checkpoint:
    checkpoints = list_checkpoints(folder.checkpoints)
    if not checkpoints:
        raise BadInput(f"{folder.path} has no checkpoint yet")
    if config.evaluate.select == "last":
        return checkpoints[-1]
    scored = [checkpoint for checkpoint in checkpoints if checkpoint.score is not None]
    if not scored:
        raise BadInput(f"{folder.path} has no checkpoint yet that was measured at training lengths")
    return max(scored, key=lambda checkpoint: (checkpoint.score, checkpoint.step))


@torch.no_grad()
def _validate(config: RunConfig, model: Model, seed: int, device: str) -> float:
    """Share of exact answers at training lengths, on a stream of its own (short samples may repeat all the same)."""
    lengths = torch.tensor(legal_lengths(config.task, config.train.lengths), device=device)
    draws = stream(seed, "validate", torch.arange(_VALIDATION_SAMPLES, device=device))
    length = lengths[draws.below("length", len(lengths), 1)[:, 0]]
    sample = config.task.sample(length, draws.child("task"), int(lengths.max()))
    judged = judge(model, sample, config.ids.evaluation_ids(config.task, sample))
    return float(judged.exact_with_ids.float().mean())


def refuse_other_config(folder: RunFolder, config: RunConfig) -> None:
    """A run goes on only as it was started."""
    stored, asked = to_plain(folder.config()), to_plain(config)
    for path, (old, new) in _differences(stored, asked).items():
        raise BadInput(f"{folder.path} was started with {path}={old}, now asked for {new}: choose another --out")


def _differences(old: object, new: object, path: str = "") -> dict[str, tuple[object, object]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, tuple[object, object]] = {}
        for key in [*old, *(key for key in new if key not in old)]:
            found |= _differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        return found
    return {} if old == new else {path: (old, new)}


def _last_good(folder: RunFolder) -> str:
    checkpoints = list_checkpoints(folder.checkpoints)
    if not checkpoints:
        return "no checkpoint had been saved before"
    return f"the last good state is step {checkpoints[-1].step} in {folder.checkpoints}"


def _labels(runs: list[_Run]) -> str:
    if len({run.folder.path.parent for run in runs}) > 1:
        return f"{_label(runs[0].folder)} and {len(runs) - 1} more"
    others = [str(run.seed) for run in runs[1:]]
    return ", ".join([_label(runs[0].folder), *others])


def _label(folder: RunFolder) -> str:
    return "/".join(Path(folder.path).parts[-2:])
