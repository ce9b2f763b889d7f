"""One run from start to end: check, train, test, save."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from longreach.config import Plain, to_plain
from longreach.engine.plan import Parallel
from longreach.engine.ranks import ALONE, Ranks, processes
from longreach.errors import BadInput, RunFailed, argument
from longreach.runs.check import check
from longreach.runs.corpus import corpus_of, refuse_other_corpus, verify_corpus
from longreach.runs.failures import naming_lack_of_memory
from longreach.runs.folder import RunFolder, RunInfo
from longreach.runs.follow import FINISHED, follow
from longreach.runs.journal import Journal
from longreach.runs.memory import check_together, check_training_memory, check_weights
from longreach.runs.observer import Observer, Run, last_good, saved_step
from longreach.runs.parts import new_model
from longreach.runs.profile import BUILD, CHECK
from longreach.runs.recipe import RunConfig
from longreach.runs.scoring import score_run
from longreach.runs.tracking import Trackers, check_trackers
from longreach.runs.training import train_runs
from longreach.system.files import remove_leftovers
from longreach.system.lock import LOCK, hold
from longreach.training import deterministic_kernels

_TRAINING_WITH_LESS = "a greater execution.accumulate, execution.recompute and a smaller --stack need less"
_TESTING_WITH_LESS = "a smaller execution.batch_tokens (--batch-tokens) with --resume needs less"


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


def use_threads(count: int) -> None:
    """Let torch compute with this many CPU threads; raise BadInput for more than a machine can start."""
    most = max(64, 8 * (os.cpu_count() or 1))
    if not 1 <= count <= most:
        raise BadInput(f"{argument('threads')} must be in 1..{most} on this machine, got {count}")
    torch.set_num_threads(count)


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

    What they must have in common `stacks` says.  `track` names where they can be watched besides TensorBoard:
    wandb, trackio.  Several `ranks` train one run; only the first of them locks the folder, writes, measures and tests.
    Raises `BadInput` if another process works in one of the folders.
    """
    observer = observer or Observer()
    check_trackers(track, together=len(folders))
    for info in infos:
        if type(info.seed) is not int or not 0 <= info.seed < 2**63:
            raise BadInput(f"a seed is a whole number from 0 and below 2**63, got {info.seed!r}")
    if ranks.count > 1 and len(folders) > 1:
        raise BadInput(f"{ranks.count} processes train one seed at a time: leave out {argument('stack')}")
    if ranks.count != processes():
        raise BadInput(f"started as one of {processes()} processes, which `longreach run` alone can make one run of")
    if not ranks.first:
        with (
            deterministic_kernels(configs[0].execution.deterministic, device),
            naming_lack_of_memory(_TRAINING_WITH_LESS, partial(last_good, folders[0])),
        ):
            return follow(configs[0], folders[0], infos[0].seed, device, ranks, parallel, observer.should_stop)
    untrained = [
        config
        for config, folder in zip(configs, folders, strict=True)
        if not folder.finished and saved_step(folder) < config.train.steps
    ]
    fits = partial(check_together, number=1, device=device, processes=ranks.count)
    for config, folder in zip(configs, folders, strict=True):
        goes_on = resume and folder.begun
        if goes_on:
            refuse_other_config(folder, config)  # before anything is estimated; again when the lock is held
        if not goes_on or (not folder.finished and folder.changes_of_execution(config)):
            with observer.profile.phase(CHECK):
                check(config, check_memory=fits if config in untrained else check_weights)
        if not goes_on:
            folder.refuse_existing()  # before the lock makes a folder or touches a foreign one
        if not folder.finished:
            with observer.profile.phase(CHECK):
                verify_corpus(config.task)
    if untrained:
        with observer.profile.phase(CHECK):
            check_training_memory(untrained, device, observer.say, ranks.count)
    with ExitStack() as locks:
        for folder in folders:
            if not folder.finished:
                locks.enter_context(hold(folder.path / LOCK, again=True))  # a job of a sweep holds it already
                remove_leftovers(folder.path)
        return _execute_locked(configs, folders, infos, device, resume, observer, track, ranks, parallel)


def _execute_locked(
    configs: Sequence[RunConfig],
    folders: Sequence[RunFolder],
    infos: Sequence[RunInfo],
    device: str,
    resume: bool,
    observer: Observer,
    track: Sequence[str],
    ranks: Ranks,
    parallel: Parallel,
) -> bool:
    todo = []
    for config, folder, info in zip(configs, folders, infos, strict=True):
        journal, changes = Journal(folder.path, observer.say), ""
        if resume and folder.begun:
            refuse_other_config(folder, config)
            if folder.finished:
                observer.say(f"{folder.path} is finished already")
                continue
            changes = folder.update_execution(config)
            folder.note_resume(_signed(info, config, folder, observer.say))
        else:
            signed = _signed(info, config, folder, observer.say)
            folder.create(config, replace(signed, corpus=corpus_of(config.task)))
        journal.note("started", seed=info.seed, device=info.device, commit=info.commit, stack=info.stack)
        if changes:
            journal.note("changed", message=changes)
        with observer.profile.phase(BUILD):
            model = new_model(config, info.seed, device)
        todo.append(Run(config, folder, info.seed, model, journal, Trackers(track, config, folder, info)))
    if not todo:
        ranks.hear(FINISHED)
        return True
    failures: dict[Path, str] = {}
    with ExitStack() as closing:
        for run in todo:
            closing.enter_context(run.journal)
            closing.enter_context(run.tracker)
        closing.enter_context(deterministic_kernels(configs[0].execution.deterministic, device))
        with naming_lack_of_memory(_TRAINING_WITH_LESS, partial(last_good, todo[0].folder)):
            done = train_runs(todo, device, observer, failures, ranks, parallel)
        if not done:
            return _interrupted(todo)
        for run in todo:
            if run.folder.path in failures:
                continue
            try:
                with naming_lack_of_memory(_TESTING_WITH_LESS, partial(last_good, run.folder)):
                    done = score_run(run, device, observer)
            except RunFailed as error:
                if len(todo) == 1:
                    raise
                failures[run.folder.path] = f"{run.folder.path}: {error}"
                run.journal.note("failed", "error", message=str(error))
                observer.say(f"{run.folder.path}: {error}; the others go on")
                continue
            ranks.hear(done)
            if not done:
                return _interrupted([run])
    if failures:
        raise RunFailed(*failures.values())
    return True


def _signed(info: RunInfo, config: RunConfig, folder: RunFolder, say: Callable[[str], None]) -> RunInfo:
    """Return the record with the places of classes from outside, unless a sweep signed them where it was started."""
    if info.signature:
        return info
    try:
        return replace(info, **folder.sign_places(config))
    except OSError as error:
        trust = argument("trust", True)
        say(f"cannot keep {error.filename} ({error.strerror}): other commands on {folder.path} will need {trust}")
        return info


def _interrupted(runs: list[Run]) -> bool:
    for run in runs:
        run.journal.note("interrupted")
    return False


def refuse_other_config(folder: RunFolder, config: RunConfig) -> None:
    """Raise BadInput unless a run goes on as it was started, but for its execution, and on the same text."""
    asked = _without_execution(to_plain(config))
    recorded = _without_execution(folder.settings())
    named = {path: pair for path, pair in _differences(recorded, asked).items() if path.endswith(".name")}
    # other classes are refused before they are imported
    for path, (old, new) in (named or _differences(_without_execution(to_plain(folder.config())), asked)).items():
        other = f"choose another {argument('out')}"
        raise BadInput(f"{folder.path} was started with {path}={old}, now asked for {new}: {other}")
    refuse_other_corpus(folder, config.task)


def _without_execution(settings: Plain) -> Plain:
    return {section: value for section, value in settings.items() if section != "execution"}


def _differences(old: object, new: object, path: str = "") -> dict[str, tuple[object, object]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, tuple[object, object]] = {}
        for key in [*old, *(key for key in new if key not in old)]:
            found |= _differences(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        return found
    return {} if old == new else {path: (old, new)}
