"""One run from start to end: check, train, test, save."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from longreach.config import to_plain
from longreach.errors import BadInput, RunFailed
from longreach.evaluate import cells, evaluate, judge, make_card, total_samples
from longreach.model import Model, build_model, check_stackable, member_state, stack_models
from longreach.objective import ObjectiveConfig, answer_loss
from longreach.positions.ids import Sequential
from longreach.runs.folder import RunFolder, RunInfo
from longreach.runs.recipe import RunConfig
from longreach.seeding import stream
from longreach.tasks import Sample, Task
from longreach.train import (
    Checkpoint,
    Hooks,
    TrainingStream,
    build_optimizer,
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

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_VALIDATION_SAMPLES = 256


@dataclass(frozen=True)
class Observer:
    """How a run tells what it is doing.  The defaults tell nobody."""

    phase: Callable[[str, int], Callable[[int, str], None]] = lambda title, total: lambda done, note: None
    """Begin a phase of so many units; the answer is called with the units done and a short note."""
    say: Callable[[str], None] = lambda line: None
    should_stop: Callable[[], bool] = lambda: False


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


def check(config: RunConfig, stacked: bool = False) -> None:
    """Find out before training starts what would go wrong after it; `stacked` if seeds are to be trained as one."""
    data = _data(config, 1024, [0], device="cpu")
    config.ids.check(config.task, _look(config.task, data.longest))
    model = _new_model(config, seed=0, device="cpu")
    if stacked:
        check_stackable(model)
    predicted = config.ids.supplier(config.task) == "model"
    _refuse_ignored(config, model, predicted)
    if config.evaluate.encoding is not None:
        with model.exchange_encoding(config.evaluate.encoding):
            pass  # refuses what the trained weights do not fit
    tested = cells(config.task, config.evaluate)[0]
    if config.evaluate.relabel_ids:
        for cell in tested:
            config.ids.check(cell.task, _look(cell.task, cell.length))
    last = model.largest_id
    if last is None:
        if predicted:
            _check_reachable(config, model)
        return
    if config.ids.max_id > last:
        raise BadInput(f"training IDs go up to {config.ids.max_id}, the table ends at {last}")
    model.check_ids(data.batch(0).ids)
    for cell in tested:
        model.check_ids(config.ids.evaluation_ids(cell.task, _look(cell.task, cell.length)) + config.evaluate.shift)
    if predicted:
        _check_reachable(config, model)


def _refuse_ignored(config: RunConfig, model: Model, predicted: bool) -> None:
    """Settings that need another one to have an effect."""
    ids, objective = config.ids, config.train.objective
    if predicted and model.position_head is None:
        raise BadInput(f"ids {ids.name} needs model.position_head: pointer or table")
    if not predicted and model.position_head is not None:
        raise BadInput(f"model.position_head predicts IDs, which ids {ids.name} does not use")
    if not predicted and replace(objective, dependency_weight=1.0) != ObjectiveConfig():
        raise BadInput(f"train.objective concerns predicted IDs, which ids {ids.name} does not use")
    if not predicted and config.evaluate.prompt_ids_only:
        raise BadInput(f"evaluate.prompt_ids_only concerns predicted IDs, which ids {ids.name} does not use")
    if model.dependency_head is None and objective.dependency_weight != ObjectiveConfig().dependency_weight:
        raise BadInput("train.objective.dependency_weight needs model.dependency_head")
    if model.dependency_head is not None:
        config.task.depends_on(_look(config.task, min(legal_lengths(config.task, config.train.lengths))))
    if not model.reads_ids and type(ids) is not Sequential:
        raise BadInput(f"model {config.model.name} reads no position IDs, so ids {ids.name} would make no difference")


def execute(
    config: RunConfig,
    folder: RunFolder,
    info: RunInfo,
    device: str,
    resume: bool = False,
    observer: Observer | None = None,
) -> bool:
    """Train and test one seed in its folder; False if interrupted, with everything saved for a resume."""
    return execute_together(config, [folder], [info], device, resume, observer)


def execute_together(
    config: RunConfig,
    folders: Sequence[RunFolder],
    infos: Sequence[RunInfo],
    device: str,
    resume: bool = False,
    observer: Observer | None = None,
) -> bool:
    """Train several seeds as one stack and test them one by one, each in its folder; False if interrupted."""
    observer = observer or Observer()
    todo = []
    for folder, info in zip(folders, infos, strict=True):
        if resume and (folder.path / "config.yaml").exists():
            refuse_other_config(folder, config)
            if folder.finished:
                observer.say(f"{folder.path} is finished already")
                continue
            folder.note_resume(info)
        else:
            check(config)
            folder.create(config, info)
        todo.append(_Run(folder, info.seed, _new_model(config, info.seed, device)))
    if not todo:
        return True
    failures: dict[int, str] = {}
    if not _train(config, todo, device, observer, failures):
        return False
    for run in todo:
        if run.seed not in failures and not _test(config, run.folder, run.seed, run.model, device, observer):
            return False
    if failures:
        raise RunFailed("; ".join(failures.values()))
    return True


class _Run(NamedTuple):
    """One seed."""

    folder: RunFolder
    seed: int
    model: Model


def _train(config: RunConfig, runs: list[_Run], device: str, observer: Observer, failures: dict[int, str]) -> bool:
    starts = [newest_intact(run.folder.checkpoints, warn=observer.say) for run in runs]
    steps = [0 if start is None else start.step for start in starts]
    if len(set(steps)) > 1:
        observer.say("the seeds stopped at different steps: they go on one after the other")
        return all(_train(config, [run], device, observer, failures) for run in runs)
    optimizers = [build_optimizer(config.train.optimizer, run.model) for run in runs]
    step = steps[0]
    for run, start, optimizer in zip(runs, starts, optimizers, strict=True):
        if start is not None:
            load_checkpoint(start, run.model, optimizer)
            observer.say(f"resuming {run.folder.path} at step {step}")
        run.folder.forget_after(step)
    if step >= config.train.steps:
        return True
    model, optimizer = runs[0].model, optimizers[0]
    if len(runs) > 1:
        model = stack_models([run.model for run in runs])
        optimizer = build_optimizer(config.train.optimizer, model)
        if step:
            stack_state(optimizer, optimizers)
    # only training runs compiled: a test has a new shape for every length, and each would be compiled anew
    compiled = cast(Model, torch.compile(model)) if config.train.compile else None
    data = _data(config, config.train.batch_size, [run.seed for run in runs], device)
    report = observer.phase(f"train {_labels(runs)}", config.train.steps)
    report(step, "")

    def refresh(number: int) -> None:
        """Bring one of the models of a stack up to date."""
        if len(runs) > 1:
            runs[number].model.load_state_dict(member_state(model, number))

    def hooks(number: int, board: "SummaryWriter") -> Hooks:
        folder, seed, member = runs[number]

        def log(done: int, values: dict[str, float]) -> None:
            folder.log(done, values)
            for name, value in values.items():
                board.add_scalar(name, value, done)

        def validate(done: int) -> float:
            refresh(number)
            score = _validate(config, member.eval(), seed, device)
            log(done, {"in_distribution_em": score})
            return score

        def save(done: int, score: float | None) -> None:
            refresh(number)
            if len(runs) > 1:
                take_member(optimizer, number, optimizers[number])
            save_checkpoint(folder.checkpoints, done, member, optimizers[number], score)
            prune(folder.checkpoints, config.train.keep_last)

        def give_up(reason: str) -> None:
            failures[seed] = f"{folder.path}: {reason}; {_last_good(folder)}"
            if len(runs) == 1:
                raise RunFailed(failures[seed])
            observer.say(f"{failures[seed]}; the others go on")

        return Hooks(
            log=log,
            validate=validate,
            save=save,
            progress=lambda done, loss: report(done, f"loss {loss:.3g}"),
            should_stop=observer.should_stop,
            give_up=give_up,
        )

    from torch.utils.tensorboard import SummaryWriter  # takes a second to import

    with ExitStack() as boards:
        places = [str(run.folder.path / "tensorboard") for run in runs]
        writers = [boards.enter_context(SummaryWriter(place, purge_step=step + 1)) for place in places]
        every = [hooks(number, writer) for number, writer in enumerate(writers)]
        return train(model, optimizer, data, config.train, every, start_step=step, compiled=compiled)


class _StopTesting(Exception):
    """Asked to stop between two batches of a test."""


def _test(config: RunConfig, folder: RunFolder, seed: int, model: Model, device: str, observer: Observer) -> bool:
    load_checkpoint(_selected(folder, config), model)
    report = observer.phase(f"test {_label(folder)}", total_samples(config.task, config.evaluate))
    for line in cells(config.task, config.evaluate)[1]:
        observer.say(f"left out: {line}")

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
    return True


def load_model(folder: RunFolder, device: str = "cpu") -> tuple[RunConfig, Model]:
    """A trained model and the configuration it was trained under."""
    config = folder.config()
    model = _new_model(config, seed=0, device=device)
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


@torch.no_grad()
def _check_reachable(config: RunConfig, model: Model) -> None:
    """Refuse a position head that cannot say the true IDs: its loss would be infinite."""
    batch = _data(config, 64, [0], device="cpu").batch(0)
    objective = ObjectiveConfig(id_loss_on=config.train.objective.id_loss_on)
    needs = None if model.dependency_head is None else config.task.depends_on(batch.sample)
    loss = answer_loss(model, batch.sample, batch.ids, objective, depends_on=needs)
    if not math.isfinite(float(loss.position.sum())):
        raise BadInput(
            f"the position head cannot reach all IDs of {config.task.name}: raise model.position_head.moves,"
            " or use another head or form of coupling"
        )


def _data(config: RunConfig, batch_size: int, seeds: Sequence[int], device: str) -> TrainingStream:
    lengths = legal_lengths(config.task, config.train.lengths)
    first, *others = seeds
    prime = config.train.prime
    return TrainingStream(config.task, config.ids, lengths, batch_size, first, device, prime, tuple(others))


def _new_model(config: RunConfig, seed: int, device: str) -> Model:
    sizes = config.ids.level_sizes(config.task)
    return build_model(config.model, len(config.task.vocabulary), seed, sizes, config.ids.max_id, device)


def _look(task: Task, length: int) -> Sample:
    numbers = torch.arange(16)
    return task.sample(torch.full_like(numbers, length), stream(0, "look", numbers), length)


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
        return "no checkpoint had been saved before; try a lower train.optimizer.lr"
    return f"the last good state is step {checkpoints[-1].step} in {folder.checkpoints}"


def _labels(runs: list[_Run]) -> str:
    others = [str(run.seed) for run in runs[1:]]
    return ", ".join([_label(runs[0].folder), *others])


def _label(folder: RunFolder) -> str:
    return "/".join(Path(folder.path).parts[-2:])
